"""The simulator against what a hand, a recursion or a conservation law says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from baselines.fcfs import Fcfs
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.checks import IllegalDecision
from harness.interface.decisions import (
    Batch,
    ContinuousBatching,
    Decision,
    Deployment,
    PreemptionMode,
    PriorityOrder,
)
from harness.interface.draft import Draft
from harness.interface.entities import (
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    ServiceId,
    Work,
)
from harness.interface.events import Arrived, Event, Finished, Moved, Predicted
from harness.interface.filling import continuous_batch
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.tables import RequestTable
from harness.interface.views import ClusterView, GroupView
from harness.runs.metrics import gpu_figures, request_figures
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    a_group,
    rule,
    serve,
    workload,
)
from harness.workloads.workload import Workload

Floats = NDArray[np.float64]
NO_EVENTS: frozenset[type[Event]] = frozenset()
ALONE = rule(max_num_seqs=1)


def _some_load(seed: int, count: int = 60, services: int = 3) -> Workload:
    rng = np.random.default_rng(seed)
    return workload(
        rng.integers(1, 90, count).tolist(),
        rng.integers(1, 60, count).tolist(),
        np.cumsum(rng.exponential(0.05, count)).tolist(),
        services=services,
    )


class Moving:
    """Three services on two GPUs: two at a time, the others moved in every 0.9 s and at drains."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def __init__(self) -> None:
        self._turn = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The next two of those that have requests."""
        self._turn += 1
        names = sorted(view.services)
        order = [names[(self._turn + i) % len(names)] for i in range(len(names))]
        order.sort(key=lambda service: not view.backlog[service])
        groups = tuple(a_group(service, gpu) for gpu, service in enumerate(order[:2]))
        return Deployment(groups, wake_s=view.now_s + 0.9)


def _runs() -> list[tuple[str, Workload, Recorder]]:
    """Runs of several kinds, each with its workload."""
    found = []
    for name, batch_rule, blocks in (
        ("padded", rule(pads=True, padding=60), 200),
        ("mixed and tight", rule(chunked_prefill=True, tokens=32), 17),
    ):
        for moving in (False, True):
            load = _some_load(3)
            recorder = serve(
                load,
                Fcfs(rule=batch_rule),
                Moving() if moving else None,
                costs=UnevenCosts(blocks=blocks, load=0.11),
                gpus=2 if moving else 3,
                recorder=Recorder(keep_events=True),
            )
            found.append((f"{name}{' and moving' * moving}", load, recorder))
    return found


RUNS = _runs()


@pytest.mark.parametrize(("load", "recorder"), [r[1:] for r in RUNS], ids=[r[0] for r in RUNS])
def test_conservation(load: Workload, recorder: Recorder) -> None:
    """Tokens out = tokens asked; everybody ends once, after its first token, after its arrival."""
    frame = recorder.requests
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    ends = [e.request.id for e in recorder.events if isinstance(e, Finished)]
    assert sorted(ends) == list(range(len(load)))
    assert (frame["first_token_s"] > frame["arrival_s"]).all()
    assert (frame["finished_s"] >= frame["first_token_s"]).all()
    single = load.output_tokens == 1
    assert (frame["finished_s"] > frame["first_token_s"])[~single].all()
    known = [e.request.id for e in recorder.events if isinstance(e, Arrived)]
    assert sorted(known) == list(range(len(load)))
    times = [e.now_s for e in recorder.events]
    assert times == sorted(times)


@pytest.mark.parametrize("recorder", [r[2] for r in RUNS], ids=[r[0] for r in RUNS])
def test_a_gpu_does_one_thing_at_a_time(recorder: Recorder) -> None:
    """Busy and loading intervals of a GPU do not overlap and lie within the run."""
    horizon_s = recorder.requests["finished_s"].max()
    frame = recorder.gpu_frame()
    assert (frame["end_s"] > frame["start_s"]).all()
    assert frame["start_s"].min() >= 0
    assert frame.loc[frame["use"] == GpuUse.BUSY.value, "end_s"].max() == horizon_s
    for _, rows in frame.groupby("gpu"):
        assert (rows["start_s"].to_numpy()[1:] >= rows["end_s"].to_numpy()[:-1] - 1e-12).all()


def test_busy_time_is_what_the_requests_were_computed_in() -> None:
    """A batch of one: the busy seconds of the GPU are the attained seconds of its requests."""
    recorder = serve(_some_load(1, services=1), Fcfs(rule=ALONE))
    frame = recorder.gpu_frame()
    busy = frame[frame["use"] == GpuUse.BUSY.value]
    spent_s = (busy["end_s"] - busy["start_s"]).sum()
    assert spent_s == pytest.approx(recorder.requests["gpu_s"].sum(), rel=1e-9)


@pytest.mark.parametrize("fast", [True, False])
def test_nothing_is_computed_while_a_group_loads(fast: bool) -> None:
    """Load 3 s, prefill 0.5 s: the first token at 3.5 s; two more decodes end it at 4.0 s."""
    frame = serve(workload([9], [3]), costs=FlatCosts(load=3.0), fast_forward=fast).requests
    assert frame["first_token_s"].tolist() == [3.5]
    assert frame["finished_s"].tolist() == [4.0]


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


# What cannot be


def test_a_request_that_can_never_fit() -> None:
    """A prompt of 200 tokens, 12 blocks of 16 tokens: the sentence has the numbers."""
    with pytest.raises(ValueError, match=r"r0 can never be admitted: 12 KV blocks of 16 tokens"):
        serve(workload([200], [5]), costs=LinearCosts(blocks=12))
    with pytest.raises(ValueError, match=r"100 tokens a batch"):
        serve(workload([200], [5]), Fcfs(rule=rule(tokens=100)))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("chunked_prefill", [True, False])
def test_a_request_that_outgrows_the_kv(fast: bool, chunked_prefill: bool) -> None:
    """A prompt of 30 tokens fits 3 blocks of 16, 40 tokens more do not: refused, not endless."""
    with pytest.raises((ValueError, IllegalDecision), match=r"r0|1 requests wait"):
        serve(
            workload([30], [40]),
            Fcfs(rule=rule(chunked_prefill=chunked_prefill)),
            costs=LinearCosts(blocks=3),
            fast_forward=fast,
        )


@dataclass(frozen=True)
class Cramped(LinearCosts):
    """Weights that fit two GPUs, not one."""

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """No blocks beside the weights on one GPU."""
        return 64 if tensor_parallel > 1 else 0


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([("m", (7,))], "a deployment uses GPU 7, the cluster has 2"),
        ([("m", (0,)), ("m", (0, 1))], "a deployment puts two groups on GPU 0"),
        ([("m", (1, 1))], "a deployment puts two groups on GPU 1"),
        ([("m", (1,))], "m does not fit 1 GPUs of this cluster"),
        ([], r"requests wait for ever: {'m': 1} unfinished"),
        ([("other", (0, 1))], "a deployment serves other, which this run does not know"),
    ],
)
def test_impossible_deployments(groups: list[tuple[str, tuple[int, ...]]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        serve(workload([9], [3]), None, Everywhere(*groups), costs=Cramped())


class Scripted:
    """Scheduling policy for tests: whatever a function of the view says."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = NO_EVENTS

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Idle."""
        return Decision()


class Greedy(Scripted):
    """Computes more tokens than there are."""

    def schedule(self, view: GroupView) -> Decision:
        """One too many."""
        return Decision(launch=(Batch(SERVICE, {RequestId(0): 10}),))


class Forgetful(Scripted):
    """Wants to be woken in the past."""

    def schedule(self, view: GroupView) -> Decision:
        """Yesterday."""
        return Decision(wake_s=view.now_s - 1)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (
            Scripted,
            r"^Scripted in m@0 at 1.000 s: 1 requests wait, nothing runs and no time",
        ),
        (Greedy, r"^Greedy in m@0 at 1.000 s: r0 would compute 10 tokens but misses only 9"),
        (Forgetful, r"^Forgetful in m@0 at 1.000 s: wake_s 0.0 s is not after now, 1.0 s"),
    ],
)
def test_an_illegal_decision_names_the_policy(
    policy: type[SchedulingPolicy], sentence: str
) -> None:
    with pytest.raises(IllegalDecision, match=sentence):
        serve(workload([9], [3]), policy())


def test_needs_that_the_engine_lacks() -> None:
    class Fancy(Scripted):
        requires = frozenset({Capability.SWAP})

    with pytest.raises(ValueError, match="Simulator lacks what Fancy needs: preempted KV"):
        serve(workload([9], [3]), Fancy())


def test_a_dispatch_to_a_group_of_another_service() -> None:
    class Wrong:
        reads_load: ClassVar[bool] = True

        def dispatch(
            self, requests: Sequence[int], service: ServiceId, view: ClusterView
        ) -> list[GroupId]:
            return [GroupId("m1@1") for _ in requests]

    load = workload([9, 9], [3, 3], services=2)
    with pytest.raises(ValueError, match="r0 of m0 was dispatched to m1@1, which does not"):
        serve(load, dispatch=Wrong())


# Preemption


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
        continuous_batch(draft, list(view.requests.values()))
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


# Order and time


@pytest.mark.parametrize("moving", [False, True])
def test_the_same_twice(moving: bool) -> None:
    first, second = (
        serve(
            _some_load(5),
            Fcfs(rule=rule(chunked_prefill=True, tokens=40)),
            Moving() if moving else None,
            costs=UnevenCosts(blocks=17, load=0.11),
            gpus=3,
            recorder=Recorder(keep_events=True, keep_iterations=True),
        )
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(first.requests, second.requests, check_exact=True)
    pd.testing.assert_frame_equal(first.gpu_frame(), second.gpu_frame(), check_exact=True)
    assert first.events == second.events
    one, other = first.iteration_frame(), second.iteration_frame()
    assert one is not None
    assert other is not None
    pd.testing.assert_frame_equal(one, other, check_exact=True)


def _service_s(costs: LinearCosts, prompt: int, output: int) -> float:
    """Seconds of a request served alone."""
    square = float(prompt) ** 2
    alone_s = costs.iteration_s(SERVICE, 1, Work(1, prompt, prompt, square, 0, 0, 0))
    for context in range(prompt + 1, prompt + output):
        alone_s += costs.iteration_s(SERVICE, 1, Work(0, 0, 0, 0.0, 1, context, context))
    return alone_s


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "batch_rule",
    [ALONE, rule(chunked_prefill=True, max_num_seqs=1), rule(pads=True, max_num_seqs=1)],
)
@given(seed=st.integers(0, 10**6), gap_s=st.sampled_from([0.05, 0.25, 1.0]))
@settings(max_examples=6, deadline=None)
def test_a_batch_of_one_is_lindleys_queue(
    fast: bool, batch_rule: ContinuousBatching, seed: int, gap_s: float
) -> None:
    """finish_i = max(arrival_i, finish_(i-1)) + service_i, for every request."""
    costs = LinearCosts(load=0.75)
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 90, 25), rng.integers(1, 60, 25)
    arrivals_s = np.cumsum(rng.exponential(gap_s, 25))
    load = workload(prompts.tolist(), outputs.tolist(), arrivals_s.tolist())
    frame = serve(load, Fcfs(rule=batch_rule), costs=costs, fast_forward=fast).requests
    finish_s, expected = costs.load, []
    for arrival_s, prompt, output in zip(arrivals_s, prompts, outputs, strict=True):
        finish_s = max(arrival_s, finish_s) + _service_s(costs, int(prompt), int(output))
        expected.append(finish_s)
    np.testing.assert_allclose(frame["finished_s"], expected, rtol=1e-9)


@pytest.mark.parametrize("recorder", [r[2] for r in RUNS], ids=[r[0] for r in RUNS])
def test_littles_law_holds_as_an_identity(recorder: Recorder) -> None:
    """The integral of the requests present, from the events, is the sum of the sojourn times."""
    steps = [(e.request.arrival_s, 1) for e in recorder.events if isinstance(e, Arrived)]
    steps += [(e.now_s, -1) for e in recorder.events if isinstance(e, Finished)]
    steps.sort()
    present = np.cumsum([change for _, change in steps])
    area = float((present[:-1] * np.diff([at_s for at_s, _ in steps])).sum())
    frame = recorder.requests
    assert present[-1] == 0
    assert area == pytest.approx((frame["finished_s"] - frame["arrival_s"]).sum(), rel=1e-9)


def test_what_a_placement_sees_is_who_is_there() -> None:
    """At every question the backlog is arrivals minus finishes so far, per service."""
    seen: list[tuple[float, dict[ServiceId, int], int]] = []

    class Counting(Moving):
        def place(self, view: ClusterView) -> Deployment:
            sizes = {s: len(view.unfinished(s).id) for s in view.services}
            assert sizes == dict(view.backlog)
            seen.append((view.now_s, sizes, sum(view.queued.values())))
            return super().place(view)

    load = _some_load(8)
    frame = serve(load, None, Counting(), costs=UnevenCosts(load=0.11)).requests
    for now_s, sizes, queued in seen:
        present = frame[(frame["arrival_s"] <= now_s) & (frame["finished_s"] > now_s)]
        count = present["service"].value_counts().to_dict()
        assert sizes == {s: count.get(s, 0) for s in sizes}
        assert queued <= len(present)
    assert len(seen) > 5


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


# Predictions


class Oracle:
    """The true length, after some seconds."""

    foresees: ClassVar[bool] = False

    def __init__(self, load: Workload, seconds: float) -> None:
        self._output, self._seconds = load.output_tokens, seconds

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """One sample: the truth."""
        return LengthPrediction((int(self._output[request.id]),)), self._seconds


class ShortestFirst(Scripted):
    """A priority order by predicted length; without a prediction last."""

    def __init__(self, *, chunked_prefill: bool = False, max_num_seqs: int = 1) -> None:
        self._rule = rule(chunked_prefill=chunked_prefill, max_num_seqs=max_num_seqs, tokens=4096)

    def schedule(self, view: GroupView) -> Decision:
        """The same for every group."""
        return Decision(priority_order=PriorityOrder(self._key, self._rule))

    @staticmethod
    def _key(table: RequestTable) -> Floats:
        return np.nan_to_num(table.predicted_mean_tokens, nan=np.inf)


def _sjf(seconds: float, fast: bool) -> tuple[list[float], Recorder]:
    load = workload([9] * 4, [7, 5, 3, 1], [0.0, 1.0, 1.0, 1.0])
    recorder = Recorder(keep_events=True)
    served = serve(
        load,
        ShortestFirst(),
        costs=FlatCosts(load=0.0),
        fast_forward=fast,
        recorder=recorder,
        predictor=Oracle(load, seconds),
    )
    return served.requests["finished_s"].tolist(), recorder


@pytest.mark.parametrize("fast", [True, False])
def test_predictions_come_when_they_are_ready_and_order_the_queue(fast: bool) -> None:
    """One at a time. r0 (7 tokens) runs from 0 to 2.0 s, when r1 to r3 (5, 3, 1) wait.

    Known at 1.5 s, they go shortest first: r3 to 2.5, r2 to 3.5, r1 to 5.0 s. With a latency of
    1.25 s they are known at 2.25 s: r1 has been taken by its id, to 3.5 s, then r3, then r2.
    """
    ends, recorder = _sjf(0.5, fast)
    assert ends == [2.0, 5.0, 3.5, 2.5]
    told = [(e.now_s, e.request) for e in recorder.events if isinstance(e, Predicted)]
    assert told == [(0.5, 0), (1.5, 1), (1.5, 2), (1.5, 3)]
    ends, recorder = _sjf(1.25, fast)
    assert ends == [2.0, 3.5, 5.0, 4.0]
    told = [(e.now_s, e.request) for e in recorder.events if isinstance(e, Predicted)]
    assert told == [(1.25, 0), (2.25, 1), (2.25, 2), (2.25, 3)]


@pytest.mark.parametrize("fast", [True, False])
def test_a_prediction_without_latency_is_there_at_arrival(fast: bool) -> None:
    """Three arrive at an idle group at 3.0 s: the shortest goes first, not the first by id."""
    load = workload([9] * 3, [5, 3, 1], [3.0, 3.0, 3.0])
    frame = serve(
        load,
        ShortestFirst(),
        costs=FlatCosts(),
        fast_forward=fast,
        predictor=Oracle(load, 0.0),
    ).requests
    assert frame["finished_s"].tolist() == [6.0, 4.5, 3.5]


@pytest.mark.parametrize("chunked_prefill", [True, False])
@given(seed=st.integers(0, 10**6), seconds=st.sampled_from([0.0, 0.0123, 0.371]))
@settings(max_examples=20, deadline=None)
def test_predicted_order_is_the_same_in_the_open(
    chunked_prefill: bool, seed: int, seconds: float
) -> None:
    """Fast-forward on and off, while predictions reorder the queue."""
    load = _some_load(seed, 30, 1)
    on, off = (
        serve(
            load,
            ShortestFirst(chunked_prefill=chunked_prefill, max_num_seqs=4),
            costs=LinearCosts(blocks=20),
            fast_forward=fast,
            predictor=Oracle(load, seconds),
        ).requests
        for fast in (True, False)
    )
    assert on["preemptions"].tolist() == off["preemptions"].tolist()
    np.testing.assert_allclose(on["finished_s"], off["finished_s"], rtol=1e-9)


# What policies may see


TELLTALE = 1021
"""True output length of all; with prompts of 1,100 tokens nothing else in a run comes to it."""

PLAIN = (str, bytes, bool, type(None))


@dataclass
class Walk:
    """Every value reachable through public attributes, items and properties."""

    seen: set[int] = field(default_factory=set)
    kept: list[object] = field(default_factory=list)
    visited: int = 0

    def assert_silent(self, value: object, path: str) -> None:
        """Fail where the telltale is reached."""
        self.visited += 1
        if isinstance(value, PLAIN):
            return
        if isinstance(value, int | float | np.number):
            assert value != TELLTALE, path
            return
        if isinstance(value, np.ndarray):
            assert not (value == TELLTALE).any(), path
            return
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.kept.append(value)  # so that no id is used twice
        if isinstance(value, Mapping | MappingProxyType):
            for key, item in value.items():
                self.assert_silent(key, f"key of {path}")
                self.assert_silent(item, f"{path}[{key}]")
        elif isinstance(value, tuple | list | set | frozenset):
            for i, item in enumerate(value):
                self.assert_silent(item, f"{path}[{i}]")
        else:
            self._assert_attributes(value, path)

    def _assert_attributes(self, value: object, path: str) -> None:
        if isinstance(value, type) or type(value).__module__ == "builtins":
            return
        for name in dir(value):
            if not name.startswith("_"):
                item = getattr(value, name)
                if not callable(item) or isinstance(item, type):
                    self.assert_silent(item, f"{path}.{name}")


@dataclass
class Nosy:
    """Walks whatever its policy is handed, then lets the policy decide."""

    inner: SchedulingPolicy
    visited: int = 0
    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Moved, Predicted})

    def observe(self, event: Event) -> None:
        """Look into the event."""
        self._walk(event, "event")

    def schedule(self, view: GroupView) -> Decision:
        """Look into the view."""
        self._walk(view, "view")
        return self.inner.schedule(view)

    def _walk(self, value: object, path: str) -> None:
        walk = Walk()
        walk.assert_silent(value, path)
        self.visited += walk.visited


class NosyPlacement(Moving):
    """Walks the cluster, every table included."""

    visited = 0

    def place(self, view: ClusterView) -> Deployment:
        """Look, then move."""
        walk = Walk()
        walk.assert_silent(view, "view")
        for service in view.services:
            walk.assert_silent(view.unfinished(service), f"view.unfinished({service})")
        self.visited += walk.visited
        return replace(super().place(view), wake_s=view.now_s + 7.7)


class SteadyFcfs(Scripted):
    """Decides by `Draft`, steady when nobody waits."""

    def schedule(self, view: GroupView) -> Decision:
        """In order of arrival."""
        draft = Draft(view)
        continuous_batch(draft, list(view.requests.values()))
        waits = any(r.generated_tokens == 0 for r in view.requests.values())
        return draft.decision(steady=not waits)


@pytest.mark.parametrize(
    "inner", [Fcfs(rule=rule(tokens=4096)), SteadyFcfs(), ShortestFirst(max_num_seqs=2)]
)
def test_no_view_tells_how_long_an_answer_will_be(inner: SchedulingPolicy) -> None:
    load = workload([1100] * 8, [TELLTALE] * 8, [0.0] * 4 + [0.7] * 4, services=3)

    class Guess:
        foresees: ClassVar[bool] = False

        def predict(self, request: Request) -> tuple[LengthPrediction, float]:
            return LengthPrediction((50, 70)), 0.4

    nosy, placement = Nosy(inner), NosyPlacement()
    serve(load, nosy, placement, costs=UnevenCosts(load=0.11, blocks=4096), predictor=Guess())
    assert nosy.visited > 200
    assert placement.visited > 200


def test_the_walk_would_find_a_length() -> None:
    """What the test above rests on: it looks into objects, mappings, arrays and properties."""

    class Leaky:
        @property
        def deep(self) -> dict[str, list[Floats]]:
            return {"x": [np.array([1.0, TELLTALE])]}

    with pytest.raises(AssertionError, match=r"view.deep\[x\]\[0\]"):
        Walk().assert_silent(Leaky(), "view")


def test_views_are_windows() -> None:
    """Nothing of a group or cluster can be set through its view."""
    refused = []

    class Vandal(Fcfs):
        def schedule(self, view: GroupView) -> Decision:
            for name in ("now_s", "group", "requests", "in_flight"):
                with pytest.raises((AttributeError, TypeError)):
                    setattr(view, name, None)
                refused.append(name)
            assert not hasattr(view.requests, "clear")
            return super().schedule(view)

    serve(workload([9], [3]), Vandal(rule=rule()))
    assert len(refused) == 4
