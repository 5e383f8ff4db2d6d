"""Iterations as long as the tightest decode allows, by hand: 0.103 s and 0.01 s for each token."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from baselines.fair_batching import FairBatching
from harness.costs.iteration import IterationTable
from harness.interface.entities import ServiceId
from harness.tests.support.batches import watched
from harness.tests.support.serving import LinearCosts, rule, serve, workload
from harness.workloads.workload import Workload

CHUNKS = rule(chunked_prefill=True)


@dataclass(frozen=True)
class TokenCosts(LinearCosts):
    """Every token costs the same, of a prompt or not."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """0.103 s, and 0.01 s for each token."""
        none, n = np.zeros(1025), np.arange(1025)
        base_s = np.where(n > 0, 0.103, 0.0)
        a_token_s = np.full(1025, 0.01)
        decode_s = base_s + 0.01 * n
        return IterationTable(
            base_s, none, none, a_token_s, decode_s, none, none, np.array([0.103])
        )


COSTS = TokenCosts(load=0.0)


def policy(**settings: object) -> FairBatching:
    """Relaxed requests have 9 s more for their first token."""
    given: dict[str, object] = {
        "costs": COSTS,
        "rule": CHUNKS,
        "ttft_s": 1.0,
        "tpot_s": 0.2,
        "relaxed_ttft_s": 10.0,
        "relaxed_tpot_s": 0.2,
    }
    return FairBatching(**given | settings)  # type: ignore[arg-type]


def batches(load: Workload, of: FairBatching) -> list[dict[int, int]]:
    """Tokens of each request, iteration by iteration."""
    seen = watched(of)
    serve(load, seen, costs=COSTS, fast_forward=False)
    return [tokens for _, tokens in seen.steps]


def two_and_a_prompt(prompt: int) -> Workload:
    """Request 1 is relaxed; the prompt of request 2 comes while the others are computed."""
    load = workload([5, 5, prompt], [9, 9, 1], [0.0, 0.0, 0.1])
    return replace(load, priority=np.array([0, 1, 0]))


def test_a_decode_ahead_makes_room_by_hand() -> None:
    """Request 0 has a second token due at 1.2 s, 0.997 s from 0.203 s on; request 1 at 10.2 s.

    88 tokens beside request 0 take 0.993 s, and one more is too long. At 1.196 s the next token is
    due in 0.204 s: 9 tokens take 0.203 s. At 1.399 s it is in 0.201 s: 8.
    """
    found = batches(two_and_a_prompt(200), policy())
    assert found[:4] == [{0: 5, 1: 5}, {0: 1, 2: 88}, {0: 1, 2: 9}, {0: 1, 2: 8}]


def test_a_decode_ahead_runs_in_what_a_prompt_leaves_by_hand() -> None:
    """87 tokens beside both take 0.993 s."""
    found = batches(two_and_a_prompt(87), policy())
    assert [list(step.items()) for step in found[1:2]] == [[(0, 1), (2, 87), (1, 1)]]


def test_late_decodes_take_turns_by_hand() -> None:
    """Both are late from their second token on, and 0.12 s is the time for one of them."""
    load = workload([5, 5], [3, 3])
    found = batches(load, policy(ttft_s=0.01, tpot_s=0.12))
    assert found == [{0: 5, 1: 5}, {0: 1}, {1: 1}, {0: 1}, {1: 1}]


def test_the_first_request_runs_however_long_it_takes() -> None:
    load = workload([5, 5], [3, 3])
    found = batches(load, policy(ttft_s=0.01, tpot_s=0.05))
    assert found == [{0: 5, 1: 5}, {0: 1}, {1: 1}, {0: 1}, {1: 1}]


def test_no_decode_no_limit_but_the_token_budget_by_hand() -> None:
    load = workload([300, 10], [1, 1])
    assert batches(load, policy()) == [{0: 256}, {0: 44, 1: 10}]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tpot_s": 0.0}, r"policy.ttft_s, tpot_s \(1.0, 0.0\), relaxed .* must be above 0"),
        ({"relaxed_ttft_s": -1.0}, "must be above 0"),
        ({"rule": rule()}, "policy.rule must have chunked_prefill"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        policy(**settings)
