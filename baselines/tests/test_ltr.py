"""The shortest predictions run; a request that does not run is promoted."""

import pytest

from baselines.ltr import Ltr
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload

LENGTHS = [9, 2, 2, 2]


def serve_one_by_one(starves_after: int | None, promoted_for: int) -> list[float]:
    """Requests 1 to 3 come at 0.6 s; one slot, half a second a prefill, a quarter a decode."""
    load = workload([10] * 4, LENGTHS, [0.0, 0.6, 0.6, 0.6])
    policy = Ltr(rule=rule(max_num_seqs=1), starves_after=starves_after, promoted_for=promoted_for)
    served = serve(load, policy, costs=FlatCosts(load=0.0), predictor=Truth(LENGTHS))
    found: list[float] = served.requests["finished_s"].tolist()
    return found


def test_the_shorter_prediction_runs_by_hand() -> None:
    """Request 0 decodes once by 0.75, waits for the others, keeps its KV and decodes seven times.

    Each of the others takes 0.75 s: 1.5, 2.25, 3.0.
    """
    assert serve_one_by_one(None, 1) == [3.0 + 7 * 0.25, 1.5, 2.25, 3.0]


def test_a_starved_request_is_promoted_by_hand() -> None:
    """After three iterations without progress a request is promoted for one.

    Request 1 runs to 1.5: the second, third and fourth iteration were without requests 2 and 3,
    which are promoted. Request 2 computes its prompt by 2.0, and request 0, which last ran until
    0.75, is promoted. Request 3, of the lower rank, computes its prompt by 2.5, and request 0
    decodes by 2.75. None is promoted then: request 2 decodes by 3.0, request 3 by 3.25, and six
    tokens of request 0 are left.
    """
    assert serve_one_by_one(3, 1) == [3.25 + 6 * 0.25, 1.5, 3.0, 3.25]


@pytest.mark.parametrize("settings", [(0, 1), (1, 0)])
def test_less_than_one_iteration_is_refused(settings: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="it must be at least 1"):
        serve_one_by_one(*settings)
