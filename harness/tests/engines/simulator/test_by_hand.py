"""The simulator against what a hand adds up: loads, moves, preemption, events."""

import pytest

from baselines.fcfs import Fcfs
from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.interface.decisions import (
    Decision,
    Deployment,
    PreemptionMode,
)
from harness.interface.entities import (
    RequestId,
    ServiceId,
)
from harness.interface.events import Arrived, Event, Moved
from harness.interface.policies import Capability
from harness.interface.views import ClusterView, GroupView
from harness.runs.gpu_time import gpu_figures
from harness.runs.latencies import request_figures
from harness.tests.support.policies import Scripted
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    a_group,
    rule,
    serve,
    workload,
)

ALONE = rule(max_num_seqs=1)


def test_replicas_that_start_together_load_longer() -> None:
    """Each of m0's three loads 1 s and 2 x 0.5 s for the others; m1 loads alone beside them."""
    costs = FlatCosts(replica_start_s=0.5)
    groups = Everywhere(("m0", (0,)), ("m0", (1,)), ("m0", (2,)), ("m1", (3,)))
    recorder = serve(workload([9] * 4, [1] * 4, services=2), None, groups, costs=costs, gpus=4)
    loading = recorder.gpu_frame().query("use == 'loading'").sort_values("gpu")
    assert loading["end_s"].tolist() == [2.0, 2.0, 2.0, 1.0]
    assert (loading["start_s"] == 0.0).all()


class Swapping(Everywhere):
    """m0 alone on GPU 0, then m1 in its place."""

    requires = frozenset({Capability.REDEPLOY})

    def place(self, view: ClusterView) -> Deployment:
        """Whoever has requests."""
        service = next(s for s, left in view.backlog.items() if left)
        return Deployment((a_group(service, 0),))


def test_one_service_after_another_by_hand() -> None:
    """Load 1 s, m0: prefill and one decode end at 1.75 s; then m1 loads and is done 1.75 s later.

    The second GPU never works: 3.5 s of 7.0 idle.
    """
    recorder = serve(workload([9, 9], [2, 2], services=2), None, Swapping(), costs=FlatCosts())
    assert recorder.requests["finished_s"].tolist() == [1.75, 3.5]
    loading = recorder.gpu_frame().query("use == 'loading'")
    assert loading[["start_s", "end_s"]].to_numpy().tolist() == [[0.0, 1.0], [1.75, 2.75]]
    figures = gpu_figures(recorder.gpu_frame(), gpus=2, horizon_s=3.5)
    assert figures.items() >= {"gpu_busy_s": 1.5, "gpu_loading_s": 2.0, "gpu_idle_s": 3.5}.items()


def test_idle_gpu_seconds_by_hand() -> None:
    """Two services side by side, loads of 1 s, prefill 0.5 s, a decode 0.25 s.

    m0 asks 3 tokens: ends at 1 + 0.5 + 2 x 0.25 = 2.0 s. m1 asks 9: ends at 3.5 s, the horizon.
    Busy 1.0 + 2.5, loading 2.0, so of 7.0 GPU seconds 1.5 are idle.
    """
    recorder = serve(workload([5, 7], [3, 9], services=2), costs=FlatCosts())
    assert recorder.requests["finished_s"].tolist() == [2.0, 3.5]
    figures = gpu_figures(recorder.gpu_frame(), gpus=2, horizon_s=3.5)
    assert figures.items() >= {"gpu_busy_s": 3.5, "gpu_loading_s": 2.0, "gpu_idle_s": 1.5}.items()
    assert request_figures(recorder.requests, horizon_s=3.5)["jct_s_mean"] == 2.75


def test_a_stopped_load_is_lost_and_its_gpu_is_free_at_once() -> None:
    """m0 loads 2 s but is replaced by m1 at 0.5 s; m1 loads to 2.5 s, answers by 3.0 s; then m0."""

    class Rash(Everywhere):
        requires = frozenset({Capability.REDEPLOY})

        def place(self, view: ClusterView) -> Deployment:
            if view.now_s == 0:
                return Deployment((a_group("m0", 0),), wake_s=0.5)
            return Deployment((a_group("m1" if view.backlog[ServiceId("m1")] else "m0", 0),))

    load = workload([9, 9], [1, 1], services=2)
    recorder = serve(load, None, Rash(), costs=FlatCosts(load=2.0))
    assert recorder.requests["finished_s"].tolist() == [5.5, 3.0]
    spans = recorder.gpu_frame()[["group", "use", "start_s", "end_s"]].to_numpy().tolist()
    assert spans == [
        ["m0@0", "loading", 0.0, 0.5],
        ["m1@0", "loading", 0.5, 2.5],
        ["m1@0", "busy", 2.5, 3.0],
        ["m0@0", "loading", 3.0, 5.0],
        ["m0@0", "busy", 5.0, 5.5],
    ]


@pytest.mark.parametrize("fast", [True, False])
def test_a_moved_group_ends_its_iteration_first_and_keeps_its_name(fast: bool) -> None:
    """At 1.6 s the group moves to GPU 1: its first decode is in flight until 1.75 s.

    Then 2 of 5 tokens are there and the KV is gone. GPU 1 was free, so it has loaded since 1.6 s,
    to 2.6 s; the context is computed again (0.5 s, the third token), two more decodes: 3.6 s.
    """

    class Mover(Everywhere):
        requires = frozenset({Capability.REDEPLOY})

        def place(self, view: ClusterView) -> Deployment:
            gpu = 0 if view.now_s < 1.6 else 1
            return Deployment((a_group("m", gpu, name="g"),), wake_s=None if gpu else 1.6)

    frame = serve(workload([9], [5]), None, Mover(), costs=FlatCosts(), fast_forward=fast).requests
    assert frame["first_token_s"].tolist() == [1.5]
    assert frame["finished_s"].tolist() == pytest.approx([3.6])
    assert frame["preemptions"].tolist() == [1]


class Bully(Scripted):
    """Evicts r0 after its second token, once, and runs whoever is there."""

    def __init__(self) -> None:
        self._done = False
        self.seen: list[tuple[int, int]] = []

    def schedule(self, view: GroupView) -> Decision:
        """A Draft decision."""
        draft = Draft(view)
        first = view.requests[RequestId(0)]
        self.seen.append((first.kv_tokens, first.generated_tokens))
        if first.generated_tokens == 2 and not self._done:
            self._done = True
            draft.preempt(first, PreemptionMode.RECOMPUTE)
            return Decision(draft.decision().preempt, wake_s=view.now_s + 1.0)
        run_in_order(draft, list(view.requests.values()))
        return draft.decision()


def test_preempted_requests_keep_their_tokens_and_are_recomputed() -> None:
    """Prompt 9, output 4; load to 1.0 s, tokens at 1.5 and 1.75 s, preempted, pause to 2.75 s.

    Then 11 tokens of context are computed at once (0.5 s, third token), and one decode: 3.5 s. The
    KV is 9 after the prompt, 10 after the decode, 0 after the preemption, 11 recomputed.
    """
    policy = Bully()
    frame = serve(workload([9], [4]), policy, costs=FlatCosts()).requests
    assert policy.seen == [(0, 0), (9, 1), (10, 2), (0, 2), (11, 3)]
    assert frame["first_token_s"].tolist() == [1.5]
    assert frame["finished_s"].tolist() == [3.5]
    assert frame["preemptions"].tolist() == [1]
    assert frame["output_tokens"].tolist() == [4]


def test_arrived_is_told_once_and_moved_whenever_the_group_changes() -> None:
    """The old group's decode is in flight until 1.75 s; only then are its requests given away.

    Requests of time 0 come before there is any group, and have arrived in the first all the same.
    """
    heard: list[Event] = []

    class Listener(Fcfs):
        subscribes = frozenset({Arrived, Moved})

        def observe(self, event: Event) -> None:
            heard.append(event)

    class Mover(Everywhere):
        requires = frozenset({Capability.REDEPLOY})

        def place(self, view: ClusterView) -> Deployment:
            if view.now_s == 0:
                return Deployment((a_group("m", 0),), wake_s=1.6)
            return Deployment((a_group("m", 1),))

    load = workload([9, 9], [3, 3], [0.0, 1.55])
    serve(load, Listener(rule=ALONE), Mover(), costs=FlatCosts())
    told = [(type(e).__name__, e.now_s, e.request.id, e.group) for e in heard]  # type: ignore[union-attr]
    assert told == [
        ("Arrived", 0.0, 0, "m@0"),
        ("Arrived", 1.55, 1, "m@0"),
        ("Moved", 1.75, 0, "m@1"),
        ("Moved", 1.75, 1, "m@1"),
    ]
