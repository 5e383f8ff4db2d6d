"""KV that goes to host memory and comes back, against what a hand adds up."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.checks import IllegalDecision
from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.engines.host_memory import HostMemory
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Displaced,
    PreemptionMode,
    PriorityOrder,
)
from harness.interface.entities import RequestId
from harness.interface.policies import Capability
from harness.interface.views import GroupView
from harness.runs.latencies import request_figures
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.policies import RULES, Scripted
from harness.tests.support.serving import FlatCosts, LinearCosts, rule, serve, workload
from harness.tools.benchmarks.moving_policies import Ordered, attained_quanta

R0, R1 = RequestId(0), RequestId(1)
SWAP = PreemptionMode.SWAP
SLOW = HostMemory(kv_bytes=20_000, bytes_per_s=10_000.0)
"""A token of 100 bytes takes 10 ms there or back."""


class Urgent(Scripted):
    """r1 takes r0's place as soon as it is there; r0 goes on when it has ended."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SWAP})

    def __init__(self, *, steady: bool = False) -> None:
        self.seen: list[tuple[int, int, int, int]] = []
        self._steady = steady

    def schedule(self, view: GroupView) -> Decision:
        """One runs at a time."""
        draft, requests = Draft(view), view.requests
        if R0 in requests:
            r0 = requests[R0]
            self.seen.append(
                (r0.kv_tokens, r0.swapped_tokens, r0.generated_tokens, view.free_host_bytes)
            )
        if len(requests) == 2 and draft.can_swap_out(requests[R0]):
            draft.preempt(requests[R0], PreemptionMode.SWAP)
        run_in_order(draft, [requests[max(requests)]])
        return draft.decision(steady=self._steady)


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize(
    ("overlaps", "finished_s", "preempted_s"),
    [(False, [3.45, 2.6], 0.85), (True, [3.25, 2.5], 0.75)],
)
def test_a_request_that_makes_room_by_hand(
    steady: bool, overlaps: bool, finished_s: list[float], preempted_s: float
) -> None:
    """Load to 1 s. r0 (prompt 9, 5 tokens) has its first at 1.5 s, the second at 1.75 s.

    r1, which came at 1.6 s, takes its place: 10 tokens of 100 bytes leave in 0.1 s, before or
    during r1's prompt of 0.5 s. It ends with its prompt and a decode of 0.25 s, at 2.60 s or
    2.50 s. Then r0 comes back in 0.1 s, before or during its third token, and decodes three times.
    """
    policy = Urgent(steady=steady)
    recorder = serve(
        workload([9, 20], [5, 2], [0.0, 1.6]),
        policy,
        costs=FlatCosts(),
        host_memory=SLOW,
        swap_overlaps=overlaps,
    )
    frame = recorder.requests
    assert frame["finished_s"].tolist() == pytest.approx(finished_s)
    assert frame["preempted_s"].tolist() == pytest.approx([preempted_s, 0.0])
    assert frame["paused_s"].tolist() == pytest.approx([0.0, 0.0])
    assert frame["swaps"].tolist() == [1, 0]
    assert frame["swapped_bytes"].tolist() == [2000, 0]
    assert frame["swap_s"].tolist() == pytest.approx([0.2, 0.0])
    figures = request_figures(frame, horizon_s=4.0)
    assert (figures["swaps"], figures["swapped_bytes"]) == (1.0, 2000.0)
    assert figures["preemptions"] == 1.0
    assert (0, 10, 2, 19_000) in policy.seen
    assert policy.seen[-1] == ((0, 10, 2, 19_000) if steady else (12, 0, 4, 20_000))


ONE_SLOT = rule(max_num_seqs=1)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("swap_overlaps", "finished_s"), [(False, [11.82, 9.41]), (True, [11.16, 9.0])]
)
def test_who_is_swapped_out_goes_on_when_its_kv_is_back_by_hand(
    fast: bool, swap_overlaps: bool, finished_s: list[float]
) -> None:
    """r0 gives way to r1 after its quantum of 32, at 8.25 s: 41 tokens leave in 0.41 s, and back.

    That is before r1's prompt and r0's next token, or hidden behind the 0.5 s of the one and
    longer than the 0.25 s of the other. Then seven tokens are left.
    """
    order = PriorityOrder(attained_quanta, ONE_SLOT, Displaced.SWAP)
    frame = serve(
        workload([10, 10], [40, 2], [0.0, 0.1]),
        Ordered(order),
        costs=FlatCosts(load=0.0),
        fast_forward=fast,
        host_memory=HostMemory(kv_bytes=4_100, bytes_per_s=10_000.0),
        swap_overlaps=swap_overlaps,
    ).requests
    assert frame["finished_s"].tolist() == pytest.approx(finished_s)
    assert frame[["swaps", "preemptions"]].to_numpy().tolist() == [[1, 1], [0, 0]]
    assert frame["swapped_bytes"].tolist() == [8_200, 0]


@pytest.mark.parametrize("fast", [True, False])
def test_who_finds_no_room_in_host_memory_is_recomputed_by_hand(fast: bool) -> None:
    """40 tokens of room for 41: as under `Displaced.RECOMPUTE`."""
    frame = serve(
        workload([10, 10], [40, 2], [0.0, 0.1]),
        Ordered(PriorityOrder(attained_quanta, ONE_SLOT, Displaced.SWAP)),
        costs=FlatCosts(load=0.0),
        fast_forward=fast,
        host_memory=HostMemory(kv_bytes=4_099, bytes_per_s=10_000.0),
    ).requests
    assert frame["finished_s"].tolist() == pytest.approx([11.25, 9.0])
    assert frame[["swaps", "preemptions"]].to_numpy().tolist() == [[0, 1], [0, 0]]


class Bold(Scripted):
    """Swaps r0 out without asking how much host memory is free."""

    def schedule(self, view: GroupView) -> Decision:
        """At its first token."""
        draft, r0 = Draft(view), view.requests[R0]
        if r0.kv_tokens:
            return Decision({R0: PreemptionMode.SWAP}, wake_s=view.now_s + 1.0)
        run_in_order(draft, [r0])
        return draft.decision()


def test_what_does_not_fit_host_memory_is_refused() -> None:
    with pytest.raises(
        IllegalDecision, match="900 bytes of KV are swapped out, 800 bytes of host memory are free"
    ):
        serve(
            workload([9], [3]),
            Bold(),
            costs=FlatCosts(),
            host_memory=HostMemory(kv_bytes=800, bytes_per_s=1e6),
        )


@dataclass
class LatestFirst(Scripted):
    """The latest first; who gives way is swapped out, where host memory has room, else recomputed.

    Keeps the least of free host memory and the KV of everybody, as it is asked.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SWAP})
    max_num_seqs: int = 4
    least_free_bytes: int = 10**9
    had: dict[RequestId, int] = field(default_factory=dict)

    def schedule(self, view: GroupView) -> Decision:
        """Order anew and fill."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=lambda r: -r.facts.id)
        swapped = sum(r.swapped_tokens for r in order)
        assert view.free_host_bytes == 2_000 - 100 * swapped >= 0
        assert sum(r.kv_tokens for r in order) <= 12 * 16
        for request in order:
            assert min(request.kv_tokens, request.swapped_tokens) == 0
            if request.swapped_tokens:
                assert request.swapped_tokens == self.had[request.facts.id]
            self.had[request.facts.id] = request.kv_tokens + request.swapped_tokens
        self.least_free_bytes = min(self.least_free_bytes, view.free_host_bytes)
        for request in order[self.max_num_seqs :]:
            if draft.can_swap_out(request):
                draft.preempt(request, PreemptionMode.SWAP)
        run_in_order(draft, order[: self.max_num_seqs], how=PreemptionMode.SWAP, victims=order)
        moves = draft.decision()
        return draft.decision(steady=not moves.preempt and not moves.swap_in)


@given(load=loads(most=20), overlaps=st.booleans())
@settings(max_examples=10, deadline=None)
def test_host_memory_is_never_exceeded_and_nothing_is_lost_in_it(
    load: Load, overlaps: bool
) -> None:
    """Room for 20 tokens there and for 12 blocks: answers are whole, seconds add up, runs equal.

    The policy looks at free host memory and everybody's KV whenever it is asked.
    """
    recorder = assert_same_times(
        lambda fast: serve(
            workload(*load),
            LatestFirst(),
            costs=LinearCosts(blocks=12, load=0.0),
            fast_forward=fast,
            host_memory=HostMemory(kv_bytes=2_000, bytes_per_s=1e5),
            swap_overlaps=overlaps,
        )
    )
    frame = recorder.requests
    assert frame["output_tokens"].tolist() == load[1]
    assert (frame["swaps"] <= frame["preemptions"]).all()
    assert (frame["paused_s"] >= 0).all()
    spent_s = frame[["waiting_s", "gpu_s", "preempted_s", "paused_s"]].sum(axis=1)
    assert spent_s.tolist() == pytest.approx((frame["finished_s"] - frame["arrival_s"]).tolist())
    assert frame["swap_s"].tolist() == pytest.approx((frame["swapped_bytes"] / 1e5).tolist())


@pytest.mark.parametrize("fast", [True, False])
def test_holders_that_give_way_come_back_before_newcomers_by_hand(fast: bool) -> None:
    """Four blocks of four tokens: r0 and r1 ask 4 tokens for 8; r2 comes at 1.6 s and asks 4 for 1.

    0.0 s  both prompts, one block each; four decodes from 0.5 s fill two blocks each
    1.5 s  both need a third block: r1's 8 tokens leave in 0.08 s, r0 decodes to 1.83 s
    1.83 s r0 holds 3 blocks; r1 would need 3, and r2, for which one is free, waits behind it
    2.33 s r0 has its 8 tokens: r1 comes back in 0.08 s and decodes to 2.66 s; now r2 is admitted,
           alone: its prompt ends at 3.16 s
    3.66 s r1's two other tokens
    """
    frame = serve(
        workload([4, 4, 4], [8, 8, 1], [0.0, 0.0, 1.6]),
        Ordered(PriorityOrder(None, rule(), gives_way=SWAP)),
        costs=FlatCosts(blocks=4, block=4, load=0.0),
        fast_forward=fast,
        host_memory=SLOW,
    ).requests
    assert frame["finished_s"].tolist() == pytest.approx([2.33, 3.66, 3.16])
    assert frame[["swaps", "preemptions"]].to_numpy().tolist() == [[0, 0], [1, 1], [0, 0]]
    assert frame["swapped_bytes"].tolist() == [0, 1600, 0]


class Observed(Ordered):
    """An order whose group is looked at whenever it is asked for: see the test below."""

    begun: frozenset[RequestId] = frozenset()
    was_swapped: bool = False

    def schedule(self, view: GroupView) -> Decision:
        """Nothing is held twice or beyond host memory, and a newcomer finds host memory empty."""
        requests = view.requests.values()
        assert view.free_host_bytes == 2_000 - 100 * sum(r.swapped_tokens for r in requests) >= 0
        assert all(min(r.kv_tokens, r.swapped_tokens) == 0 for r in requests)
        begun = frozenset(r.facts.id for r in requests if r.kv_tokens + r.swapped_tokens > 0)
        assert not (self.was_swapped and begun - self.begun)
        self.begun = begun
        self.was_swapped = any(r.swapped_tokens for r in requests)
        return super().schedule(view)


@given(
    batch_rule=st.sampled_from(RULES),
    load=loads(most=20),
    overlaps=st.booleans(),
    aside=st.sampled_from([None, 165]),
)
@settings(max_examples=10, deadline=None)
def test_orders_that_give_way_by_swapping_keep_to_host_memory(
    batch_rule: ContinuousBatching, load: Load, overlaps: bool, aside: int | None
) -> None:
    """Room for 20 tokens there and for 12 blocks; see `Observed`."""
    order = PriorityOrder(attained_quanta, batch_rule, reserve_tokens=aside, gives_way=SWAP)
    recorder = assert_same_times(
        lambda fast: serve(
            workload(*load),
            Observed(order),
            costs=LinearCosts(blocks=12, load=0.0),
            fast_forward=fast,
            host_memory=HostMemory(kv_bytes=2_000, bytes_per_s=1e5),
            swap_overlaps=overlaps,
        )
    )
    frame = recorder.requests
    assert frame["output_tokens"].tolist() == load[1]
    assert (frame["swaps"] <= frame["preemptions"]).all()
    spent_s = frame[["waiting_s", "gpu_s", "preempted_s", "paused_s"]].sum(axis=1)
    assert spent_s.tolist() == pytest.approx((frame["finished_s"] - frame["arrival_s"]).tolist())
