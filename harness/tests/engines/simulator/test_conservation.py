"""The simulator against conservation laws: tokens, GPU time, Little's law."""

import numpy as np
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
    seen: list[tuple[float, dict[ServiceId, int]]] = []

    class Counting(Moving):
        def place(self, view: ClusterView) -> Deployment:
            sizes = {s: len(view.unfinished(s).id) for s in view.services}
            assert sizes == dict(view.backlog)
            seen.append((view.now_s, sizes))
            return super().place(view)

    load = some_load(8)
    frame = serve(load, None, Counting(), costs=UnevenCosts(load=0.11)).requests
    for now_s, sizes in seen:
        present = frame[(frame["arrival_s"] <= now_s) & (frame["finished_s"] > now_s)]
        count = present["service"].value_counts().to_dict()
        assert sizes == {s: count.get(s, 0) for s in sizes}
    assert len(seen) > 5
