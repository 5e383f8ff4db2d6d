"""What a policy is shown while it is served: requests, table and ledger tell the same."""

from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.draft import Draft
from harness.core.fill import (
    is_decode,
    run_in_order,
)
from harness.core.kv_ledger import ledger_of
from harness.core.ledger_problems import problems
from harness.interface.decisions import (
    Decision,
)
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView
from harness.tests.support.fakes import (
    numbers,
)
from harness.tests.support.serving import LinearCosts, serve, workload


class Suspicious:
    """Preempts and pauses at random by `Draft`; whenever asked, compares what it is shown twice."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.asked = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Any order, often cut short; steady where that is no more than a promise."""
        self.asked += 1
        table, requests = view.table, list(view.requests.values())
        assert numbers(requests) == table.id.tolist()
        assert [r.kv_tokens for r in requests] == table.kv_tokens.tolist()
        assert [r.generated_tokens for r in requests] == table.generated_tokens.tolist()
        assert [r.context_tokens for r in requests] == (
            table.prompt_tokens + table.generated_tokens
        ).tolist()
        kv = ledger_of(view)
        assert [kv.holding(r.facts.id) for r in requests] == table.kv_tokens.tolist()
        assert problems(kv) == []
        for name in ("kv_tokens", "context_tokens", "facts"):
            with pytest.raises(AttributeError):
                setattr(requests[0], name, 7)
        draft = Draft(view)
        order = self._rng.sample(requests, len(requests))
        if self._rng.random() < 0.1 and order[0].kv_tokens:
            draft.preempt(order.pop(0))
        run_in_order(draft, order, budget=self._rng.choice([None, None, 9]))
        steady = sum(map(draft.runs, requests)) == len(requests) and all(map(is_decode, requests))
        return draft.decision(steady=steady, wake_s=view.now_s + 0.7)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([12, 20, 200]))
def test_views_tables_and_ledger_tell_the_same(seed: int, blocks: int) -> None:
    """Requests hold their tokens as numbers of their own, through preemptions and long runs too."""
    rng = Random(seed)
    load = workload(
        [rng.randint(1, 60) for _ in range(12)],
        [rng.randint(1, 40) for _ in range(12)],
        sorted(rng.choice([0.0, 0.3, rng.random() * 3]) for _ in range(12)),
    )
    policy = Suspicious(seed)
    frame = serve(load, policy, costs=LinearCosts(blocks=blocks, load=0.0), tokens=64).requests
    assert frame["output_tokens"].tolist() == load.output_tokens.tolist()
    assert policy.asked > 12
