from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from baselines.fastserve import FastServe
from harness.costs.iteration import IterationTable
from harness.interface.entities import ServiceId
from harness.interface.tables import RequestTable
from harness.tests.support.serving import SERVICE, FlatCosts, rule, serve, workload
from harness.tests.support.shared import UnitCosts, of_services, served

COSTS = FlatCosts(load=0.0)


def fastserve(**settings: Any) -> FastServe:
    """Quanta of 0.25, 0.5 and 1 s where nothing else is said; one request runs at a time."""
    given: dict[str, Any] = {"quantum_s": 0.25, "ratio": 2.0, "queues": 3, "displaces": "pause"}
    given |= {"promote_s": None} | settings
    return FastServe(costs=COSTS, rule=rule(chunked_prefill=True, max_num_seqs=1), **given)


def test_a_used_up_quantum_demotes_by_hand() -> None:
    """A prefill takes 0.5 s, a decode 0.25 s: both requests enter the queue of 0.5 s.

    Request 0 has used it up by its prefill, and request 1 of 0.1 comes first: it prefills by 1.0
    and is demoted, too. In the last queue request 0 is first: three decodes to 1.75, then request
    1's two to 2.25.
    """
    load = workload([10, 10], [4, 3], [0.0, 0.1], max_context_tokens=64)
    frame = serve(load, fastserve(), costs=COSTS).requests
    assert frame["first_token_s"].tolist() == [0.5, 1.0]
    assert frame["finished_s"].tolist() == [1.75, 2.25]


def test_the_entry_queue_covers_the_prompt_by_hand() -> None:
    """Quanta of 10, 20 and 40 ms: prompts of 5, 15 and 90 ms enter queues 0, 1 and 2.

    A prompt of 15 ms leaves queue 1 after 20 ms: at 25 ms, after one decode of 10 ms, it is in
    queue 2.
    """
    policy = fastserve(quantum_s=0.01)
    none = np.zeros(3)
    rows = RequestTable(
        id=np.arange(3),
        arrival_s=none,
        prompt_tokens=np.full(3, 10),
        generated_tokens=np.zeros(3, int),
        kv_tokens=np.zeros(3, int),
        gpu_s=none,
        max_output_tokens=np.full(3, 9),
        deadline_s=none,
        predicted_mean_tokens=none,
        service=np.zeros(3, int),
        services=(SERVICE,),
    )
    key = policy._key(rows, np.array([0.005, 0.015, 0.09]))
    assert (key.value[:, 0] / 1e7).tolist() == [0, 1, 2]
    np.testing.assert_allclose(key.until[1], [1e-9, 0.02, np.inf], atol=1e-8)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("promote_s", "finished_s", "promotions"), [(None, [2.75, 3.25], 0), (1.0, [3.25, 2.5], 1)]
)
def test_a_starved_request_is_promoted_by_hand(
    promote_s: float | None, finished_s: list[float], promotions: int, fast: bool
) -> None:
    """Both prefill, to 0.5 and 1.0 s, and are then in the last queue, request 0 first.

    It decodes to 2.0 s, when request 1 has waited for 1 s: in the first queue that decodes to 2.25,
    and, in the second one, to 2.5 s, which is its end. Request 0 has three decodes left.
    """
    policy = fastserve(promote_s=promote_s)
    load = workload([10, 10], [8, 3], [0.0, 0.1], max_context_tokens=64)
    recorder = serve(load, policy, costs=COSTS, fast_forward=fast)
    assert recorder.requests["finished_s"].tolist() == finished_s
    assert recorder.counts["promotions"] == promotions


@dataclass(frozen=True)
class SlowPrompts(UnitCosts):
    """Prompts of m0 take 0.5 s and those of m1 2 s, a decode 0.25 s."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Bases only."""
        each = UnitCosts(each_s=0.25).table(service, tensor_parallel)
        prompt_s = {"m0": 0.5, "m1": 2.0}[service]
        return each._replace(prefill_base_s=np.full(1025, prompt_s))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("displaces", [None, "pause", "recompute"])
def test_services_of_a_group_by_hand(displaces: str | None, fast: bool) -> None:
    """Quanta of 0.5, 1 and 2 s: prompts of m0 enter the first queue, those of m1 the third.

    r0 (m1) and r1 (m0) come at 0: r1's prompt to 0.5 s and, in the second queue, its decode to 0.75
    come first, then r0's prompt to 2.75 s. r2 (m0), there since 1.0, is computed to 3.25 s, before
    r0's two decodes.
    """
    costs = SlowPrompts()
    policy = FastServe(
        costs=costs,
        rule=rule(),
        quantum_s=0.5,
        ratio=2.0,
        queues=3,
        displaces=displaces,
        promote_s=None,
    )
    load = of_services(workload([9] * 3, [3, 2, 1], [0.0, 0.0, 1.0], services=2), "100")
    found = served(load, policy, costs, fast=fast).requests
    assert found["finished_s"].tolist() == [3.75, 0.75, 3.25]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"quantum_s": 0.0}, r"quantum_s is 0\.0, it must be above 0"),
        ({"ratio": 0.5}, r"policy\.ratio 0\.5 and policy\.queues 3 must be at least 1"),
        ({"promote_s": 0.0}, r"promote_s is 0\.0, it must be above 0"),
        ({"queues": 0}, r"policy\.queues 0 must be at least 1"),
        ({"displaces": "wait"}, "'wait' is not a valid Displaced"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fastserve(**settings)
