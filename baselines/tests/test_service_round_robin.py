"""Services in turn, by hand: prompts, then decodes, and which KV is given up."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.service_round_robin import ServiceRoundRobin
from harness.interface.decisions import ContinuousBatching
from harness.tests.support.serving import rule, workload
from harness.tests.support.shared import UnitCosts, of_services, served

UNIT = UnitCosts()


def round_robin(
    batch_rule: ContinuousBatching | None = None, quantum_s: float = 1.0
) -> ServiceRoundRobin:
    return ServiceRoundRobin(rule=batch_rule or rule(), quantum_s=quantum_s)


@pytest.mark.parametrize("fast", [True, False])
def test_five_requests_by_hand(fast: bool) -> None:
    """A and B (m0, 1 s) come at 0; C (m1, 4 s), D and E (m0, 1 s) at 2; one at a time.

    Fig. 2 of the SeaLLM paper: C's prompt to 3 s, then D and E, whose prompts are all of them, to
    4 and 5 s, then C's three decodes. Latencies over lengths are 1 + 2 + 6/4 + 2 + 3, 9.5, which is
    1.27 times the 7.5 of the shorter service first.
    """
    load = of_services(workload([9] * 5, [1, 1, 4, 1, 1], [0, 0, 2, 2, 2], services=2), "00100")
    policy = round_robin(rule(max_num_seqs=1))
    ended = served(load, policy, UNIT, fast=fast).requests["finished_s"].to_numpy()
    assert ended.tolist() == [1, 2, 8, 4, 5]
    normalized = ((ended - load.arrival_s) / load.output_tokens).sum()
    assert normalized == 9.5
    assert round(normalized / 7.5, 2) == 1.27


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("quantum_s", "ends_s"), [(1.0, [10.0, 8.0]), (2.0, [10.0, 9.0]), (9.0, [7.0, 10.0])]
)
def test_services_decode_in_turn_by_hand(quantum_s: float, ends_s: list[float], fast: bool) -> None:
    """Prompts of r0 (m0, 6 tokens) and r1 (m1, 4 tokens) end at 1 and 2 s.

    Turns of 1 s are of one decode: r0's at 2, 4 and 6 s, r1's at 3, 5 and 7 s, then r0's last two.
    Turns of 2 s: r0's at 2 and 6 s, r1's at 4 and 8 s, the last of which takes 1 s.
    """
    load = workload([9, 9], [6, 4], services=2)
    found = served(load, round_robin(quantum_s=quantum_s), UNIT, fast=fast).requests
    assert found["first_token_s"].tolist() == [1.0, 2.0]
    assert found["finished_s"].tolist() == ends_s


@pytest.mark.parametrize("fast", [True, False])
def test_prompts_go_by_service_in_turn_by_hand(fast: bool) -> None:
    """r0 and r1 (m0) and r2 (m1) come at 0, r3 (m0) and r4 (m1) at 1.5 s.

    m0's prompts to 1 s and m1's to 2 s; m0's ran longest ago and go to 3 s, then m1's to 4 s.
    """
    load = of_services(workload([9] * 5, [1] * 5, [0, 0, 0, 1.5, 1.5], services=2), "00101")
    found = served(load, round_robin(), UNIT, fast=fast).requests
    assert found["finished_s"].tolist() == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("fast", [True, False])
def test_the_oldest_request_keeps_its_kv_by_hand(fast: bool) -> None:
    """9,600 bytes: blocks of m0 take 1,600, those of m1 4,800. Turns of 2 s.

    r0 (m1, 15 tokens for 5) has two tokens and a full block at 2 s, r1 (m0, 16 tokens for 36) its
    prompt at 3 s and two decodes, with 3,200 bytes, at 5 s. Then it is r0's turn, for whose second
    block r1 is preempted, the later one: r0 ends at 8 s. r1, which has three tokens, computes its
    prompt and those by 9 s, and 32 others by 41 s.
    """
    load = of_services(workload([15, 16], [5, 36], [0.0, 1.5], services=2), "10")
    found = served(load, round_robin(quantum_s=2.0), UnitCosts(blocks=6), fast=fast).requests
    assert found["finished_s"].tolist() == [8, 41]
    assert found["preemptions"].tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(2))
def test_it_ends_where_each_service_could_take_the_kv_of_the_other(seed: int) -> None:
    """KV for little more than one request: no request is computed anew for ever."""
    rng = np.random.default_rng(seed)
    prompts, answers = rng.integers(1, 90, 24), rng.integers(1, 70, 24)
    load = workload(prompts.tolist(), answers.tolist(), services=2)
    costs = UnitCosts(blocks=33, each_s=0.01)
    found = served(load, round_robin(quantum_s=0.01), costs, fast=True).requests
    assert found["finished_s"].notna().all()
    assert 0 < found["preemptions"].sum() < 240


@pytest.mark.parametrize(
    ("batch_rule", "quantum_s", "sentence"),
    [
        (rule(), 0.0, r"policy\.quantum_s is 0\.0, it must be above 0"),
        (rule(chunked_prefill=True), 1.0, r"rule\.chunked_prefill is True, it must be False"),
        (replace(rule(), prompts_first=False), 1.0, r"prompts_first is False, it must be True"),
    ],
)
def test_impossible_settings_are_refused(
    batch_rule: ContinuousBatching, quantum_s: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        round_robin(batch_rule, quantum_s)
