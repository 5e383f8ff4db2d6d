"""A decision used again on vLLM's scheduler is the one that would be made."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fastserve import FastServe
from baselines.fcfs import Fcfs
from baselines.srtf import Srtf
from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.core.ledger_problems import problems
from harness.interface.decisions import Decision
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.support.serving import LinearCosts, rule

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


from harness.tests.support.scheduler_bench import Bench  # noqa: E402


@dataclass
class Steady:
    """In order of arrival, steady when all decode."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    asked: int = 0
    at_most: int | None = None

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Fill, and promise."""
        self.asked += 1
        draft = Draft(view)
        run_in_order(draft, list(view.requests.values()))
        waits = any(r.generated_tokens == 0 for r in view.requests.values())
        return draft.decision(steady=not waits, at_most=None if waits else self.at_most)


CHUNKS = rule(chunked_prefill=True, max_num_seqs=5, tokens=140)
KINDS: dict[str, Callable[[], SchedulingPolicy]] = {
    "steady": Steady,
    "chunks": lambda: Fcfs(rule=CHUNKS),
    "whole prompts": lambda: Fcfs(rule=replace(CHUNKS, chunked_prefill=False)),
    "displaces": lambda: Srtf(rule=CHUNKS),
    "promotes": lambda: FastServe(
        costs=LinearCosts(),
        rule=CHUNKS,
        quantum_s=0.02,
        ratio=2.0,
        queues=4,
        displaces="pause",
        promote_s=0.3,
    ),
}


@given(
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=14),
    late=st.integers(0, 20),
    blocks=st.integers(9, 40),
    kind=st.sampled_from([*KINDS]),
)
@settings(max_examples=40, deadline=None)
def test_a_decision_used_again_is_the_decision_that_would_be_made(
    sizes: list[tuple[int, int]], late: int, blocks: int, kind: str
) -> None:
    """The same steps, ledger and attained time with and without using decisions again."""
    runs = []
    for again in (True, False):
        bench = Bench(KINDS[kind](), blocks=blocks)
        if not again:
            bench.scheduler.served._note_repeat = lambda decision, *, stands: None
        steps: list[object] = []
        for number, (prompt, output) in enumerate(sizes):
            if number == len(sizes) // 2:
                steps += [bench.step() for _ in range(late)]
            bench.add(number, prompt, output)
        while bench.scheduler.has_unfinished_requests():
            steps.append(bench.step())
            if len(steps) % 7 == 0:
                served = bench.scheduler.served
                steps.append([served.kv.holding(r) for r in served.requests])
                steps.append([view.gpu_s for view in served.requests.values()])
                assert not problems(served.kv)
        runs.append(steps)
    assert runs[0] == runs[1]


def test_a_steady_decision_is_not_asked_for_again() -> None:
    policy = Steady()
    bench = Bench(policy, blocks=2000)
    bench.add(0, 9, 200)
    bench.drain()
    assert policy.asked < 12


def test_a_decision_steady_for_so_many_iterations_is_asked_for_again_after_them() -> None:
    policy = Steady(at_most=5)
    bench = Bench(policy, blocks=2000)
    bench.add(0, 9, 200)
    bench.drain()
    # Two for the prompt and what follows it, then every fifth of the decodes.
    assert 200 / 5 <= policy.asked <= 200 / 5 + 5
