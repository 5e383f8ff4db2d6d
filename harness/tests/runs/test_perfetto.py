"""A run as a trace: what was recorded, where and when."""

import json
from pathlib import Path

import pandas as pd
import pytest

from harness.engines.recorder import Recorder
from harness.runs import perfetto
from harness.tests.support.serving import LinearCosts, serve, workload


def run_folder(folder: Path) -> Recorder:
    recorder = Recorder(keep_iterations=True)
    load = workload([20, 30, 10], [4, 6, 2], [0.0, 0.0, 0.5])
    serve(load, costs=LinearCosts(load=1.0), recorder=recorder)
    recorder.requests.to_parquet(folder / "requests.parquet")
    recorder.gpu_frame().to_parquet(folder / "gpu.parquet")
    iterations = recorder.iteration_frame()
    assert iterations is not None
    iterations.to_parquet(folder / "iterations.parquet")
    return recorder


def test_every_interval_iteration_and_request_is_there(tmp_path: Path) -> None:
    recorder = run_folder(tmp_path)
    found = json.loads(perfetto.write_trace(tmp_path).read_text())["traceEvents"]
    slices = [event for event in found if event["ph"] == "X"]
    iterations = recorder.iteration_frame()
    assert iterations is not None
    assert len(slices) == len(recorder.gpu_frame()) + len(iterations)
    assert sum(e["args"].get("iterations", 0) for e in slices) == iterations["iterations"].sum()
    begun = {e["id"]: e["ts"] for e in found if e["ph"] == "b"}
    ended = {e["id"]: e["ts"] for e in found if e["ph"] == "e"}
    assert set(begun) == set(ended) == {0, 1, 2}
    finished_s = recorder.requests.set_index("request")["finished_s"]
    for request, at_us in ended.items():
        assert at_us == pytest.approx(finished_s[request] * 1e6, abs=1e-2)
        assert begun[request] < at_us


def test_tracks_are_numbers_with_names(tmp_path: Path) -> None:
    run_folder(tmp_path)
    found = json.loads(perfetto.write_trace(tmp_path).read_text())["traceEvents"]
    assert all(isinstance(event[key], int) for event in found for key in ("pid", "tid"))
    names = {e["args"]["name"] for e in found if e["ph"] == "M"}
    assert {"GPU 0", "busy", "loading", "iterations", "requests", "m"} <= names
    named = {(e["pid"], e["tid"]) for e in found if e.get("name") == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in found if e["ph"] != "M"} <= named


def test_many_requests_are_left_out() -> None:
    requests = pd.DataFrame({"finished_s": [1.0] * (perfetto.MOST_REQUESTS + 1)})
    gpu = pd.DataFrame({"gpu": [], "group": [], "use": [], "start_s": [], "end_s": []})
    assert list(perfetto.events(gpu, requests, None)) == []


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert perfetto.main([str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
