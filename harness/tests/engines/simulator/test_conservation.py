"""The simulator against conservation laws: tokens, GPU time, Little's law."""

import numpy as np
import pandas as pd
import pytest

from baselines.fcfs import Fcfs
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.decisions import (
    Deployment,
)
from harness.interface.entities import (
    ServiceId,
)
from harness.interface.events import Arrived, Finished
from harness.interface.views import ClusterView
from harness.tests.support.policies import Moving, some_load
from harness.tests.support.serving import (
    UnevenCosts,
    rule,
    serve,
)
from harness.workloads.workload import Workload

ALONE = rule(max_num_seqs=1)


def _runs() -> list[tuple[str, Workload, Recorder]]:
    """Runs of several kinds, each with its workload."""
    found = []
    for name, batch_rule, blocks in (
        ("padded", rule(pads=True, padding=60), 200),
        ("mixed and tight", rule(chunked_prefill=True, tokens=32), 17),
    ):
        for moving in (False, True):
            load = some_load(3)
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
    recorder = serve(some_load(1, services=1), Fcfs(rule=ALONE))
    frame = recorder.gpu_frame()
    busy = frame[frame["use"] == GpuUse.BUSY.value]
    spent_s = (busy["end_s"] - busy["start_s"]).sum()
    assert spent_s == pytest.approx(recorder.requests["gpu_s"].sum(), rel=1e-9)


@pytest.mark.parametrize("moving", [False, True])
def test_the_same_twice(moving: bool) -> None:
    first, second = (
        serve(
            some_load(5),
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

    load = some_load(8)
    frame = serve(load, None, Counting(), costs=UnevenCosts(load=0.11)).requests
    for now_s, sizes, queued in seen:
        present = frame[(frame["arrival_s"] <= now_s) & (frame["finished_s"] > now_s)]
        count = present["service"].value_counts().to_dict()
        assert sizes == {s: count.get(s, 0) for s in sizes}
        assert queued <= len(present)
    assert len(seen) > 5
