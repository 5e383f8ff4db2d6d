"""Conservation where groups move: tokens, GPU time; `test_invariants` has where not."""

import pytest

from baselines.fcfs import Fcfs
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.decisions import ContinuousBatching, Deployment
from harness.interface.entities import ServiceId
from harness.interface.events import Finished
from harness.interface.views import ClusterView
from harness.policy_checks import assert_conserved
from harness.tests.support.policies import Moving, some_load
from harness.tests.support.serving import (
    UnevenCosts,
    rule,
    serve,
)


@pytest.mark.parametrize(
    ("batch_rule", "blocks"),
    [(rule(pads=True, padding=60), 200), (rule(chunked_prefill=True, tokens=32), 17)],
    ids=["padded", "mixed and tight"],
)
def test_a_run_whose_groups_move_adds_up(batch_rule: ContinuousBatching, blocks: int) -> None:
    """Tokens, ends of requests, and GPUs, each of which does one thing at a time."""
    load, costs = some_load(3), UnevenCosts(blocks=blocks, load=0.11)
    recorder = Recorder(keep_events=True)
    serve(load, Fcfs(rule=batch_rule), Moving(), costs=costs, gpus=2, recorder=recorder)
    assert_conserved(load, recorder)
    frame, gpu = recorder.requests, recorder.gpu_frame()
    ended_s = [event.now_s for event in recorder.events if isinstance(event, Finished)]
    assert sorted(ended_s) == sorted(frame["finished_s"])
    assert (gpu["end_s"] > gpu["start_s"]).all()
    assert gpu["start_s"].min() >= 0
    assert gpu.loc[gpu["use"] == GpuUse.BUSY.value, "end_s"].max() == frame["finished_s"].max()
    for _, rows in gpu.groupby("gpu"):
        assert (rows["start_s"].to_numpy()[1:] >= rows["end_s"].to_numpy()[:-1] - 1e-12).all()


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
