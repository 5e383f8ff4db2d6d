"""First come, first served, and which request gives way when the KV is full."""

import pytest

from baselines.fcfs import Fcfs
from harness.engines.host_memory import HostMemory
from harness.interface.policies import Capability
from harness.tests.support.serving import FlatCosts, rule, serve, workload

SMALL = FlatCosts(blocks=4, block=4)
"""Four blocks of four tokens; half a second for prompts, a quarter for a decode, load 1 s."""


@pytest.mark.parametrize("fast", [True, False])
def test_order_and_preemption_by_hand(fast: bool) -> None:
    """r0 and r1 ask 4 tokens for 8; r2 comes at 2.0 s and asks 4 for 1.

    1.0 s  both prompts, one block each; first tokens at 1.5 s
    1.5 s  decodes: the fifth token of each takes a second block, all four are used
    2.5 s  both hold 8 tokens and have 5: a third block each is needed. The latest, r1, is
           preempted; r0 goes on alone. r1 needs 3 blocks for its 9 tokens, one is free; r2 would
           fit into that one but none overtakes
    3.25 s r0 has its 8 tokens. r1 (9 tokens, 3 blocks) and r2 (1 block) are computed together
    3.75 s r2 has its token, r1 its sixth; two more decodes
    4.25 s r1 is done
    """
    load = workload([4, 4, 4], [8, 8, 1], [0.0, 0.0, 2.0])
    frame = serve(load, Fcfs(rule=rule()), costs=SMALL, fast_forward=fast).requests
    assert frame["first_token_s"].tolist() == [1.5, 1.5, 3.75]
    assert frame["finished_s"].tolist() == [3.25, 4.25, 3.75]
    assert frame["preemptions"].tolist() == [0, 1, 0]


def test_prompts_come_before_decodes_and_the_latest_waits_for_a_slot() -> None:
    """Two slots. r0 (3 tokens) and r1 (2) start; r2 (1), there since 1.1 s, waits for a slot.

    1.5 s first tokens of r0 and r1, 1.75 s r1 is done; r2's prompt goes before r0's last decode:
    r2 ends at 2.25 s, r0 at 2.5 s.
    """
    load = workload([4, 4, 4], [3, 2, 1], [0.0, 0.0, 1.1])
    frame = serve(load, Fcfs(rule=rule(max_num_seqs=2)), costs=FlatCosts()).requests
    assert frame["finished_s"].tolist() == [2.5, 1.75, 2.25]


@pytest.mark.parametrize("fast", [True, False])
def test_the_latest_is_swapped_out_by_hand(fast: bool) -> None:
    """The first example, with host memory to and from which a token takes 10 ms.

    2.5 s  r1's 8 tokens leave in 0.08 s, then r0 decodes to 3.33 s, when it has its 8 tokens; r2,
           which would fit into the block that is free, waits until r1 is back
    3.33 s r1 comes back in 0.08 s and decodes to 3.66 s
    3.66 s r2's prompt, to 4.16 s; then r1's last two decodes
    """
    load = workload([4, 4, 4], [8, 8, 1], [0.0, 0.0, 2.0])
    frame = serve(
        load,
        Fcfs(rule=rule(), gives_way="swap"),
        costs=SMALL,
        fast_forward=fast,
        host_memory=HostMemory(kv_bytes=20_000, bytes_per_s=10_000.0),
    ).requests
    assert frame["first_token_s"].tolist() == pytest.approx([1.5, 1.5, 4.16])
    assert frame["finished_s"].tolist() == pytest.approx([3.33, 4.66, 4.16])
    assert frame[["swaps", "preemptions"]].to_numpy().tolist() == [[0, 0], [1, 1], [0, 0]]


def test_what_is_required_depends_on_how_holders_give_way() -> None:
    assert Fcfs(rule=rule()).requires == frozenset()
    assert Fcfs(rule=rule(), gives_way="swap").requires == {Capability.SWAP}
    with pytest.raises(ValueError, match="'pause' is not a valid PreemptionMode"):
        Fcfs(rule=rule(), gives_way="pause")
