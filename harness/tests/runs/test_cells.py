import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from harness.runs.cells import Cell
from harness.runs.figures import FIGURES, over_draws, span_of
from harness.runs.record import MANIFEST, PROGRAM, SUMMARY, damage_of, read_summaries
from harness.tests.support.command import ENSEMBLE, SMALL
from harness.tests.support.configured import first_cell_of
from harness.tests.support.run_folders import run_cell
from harness.workloads.workload import Workload


@dataclass(frozen=True)
class Failing:
    """A recipe that cannot be followed."""

    error: Exception
    files: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def build(self, seed: int) -> Workload:
        """Raise."""
        raise self.error


def small(tmp_path: Path, *overrides: str) -> Cell:
    return first_cell_of(*SMALL, f"results={tmp_path}", *overrides)


def test_a_cell_becomes_a_whole_folder(tmp_path: Path) -> None:
    cell = small(tmp_path, "seed=3")
    run_cell(cell)
    names = ["config.yaml", "provenance.json", "facts.json", "requests.parquet", "gpu.parquet"]
    assert {path.name for path in cell.folder.iterdir()} == {*names, SUMMARY, MANIFEST}
    assert yaml.safe_load((cell.folder / "config.yaml").read_text()) == cell.config
    summary = json.loads((cell.folder / "summary.json").read_text())
    assert (summary["requests"], summary["unfinished"]) == (4, 0)
    assert summary["end_to_end_s"] == pytest.approx(summary["inference_s"] + summary["extra_s"])
    assert summary["planned_inference_s"] > 0
    assert set(summary) == {*FIGURES, "by", "decisions", "counts", PROGRAM}
    requests = pd.read_parquet(cell.folder / "requests.parquet")
    assert summary["inference_s"] == requests["finished_s"].max()
    assert summary["scheduling_s_per_iteration"] is summary["scheduling_share"] is None
    used = summary["gpu_busy_s"] + summary["gpu_loading_s"] + summary["gpu_idle_s"]
    assert used == pytest.approx(2 * summary["inference_s"])
    assert 0 <= summary["outside_profile_share"] < 1
    costs = json.loads((cell.folder / "provenance.json").read_text())["costs"]
    assert costs["source"] == {"chatglm3-6b tp1": "measured"}
    assert 0 < costs["fit_error"] < 0.1


MODELS = ("vicuna-13b-v1.5", "chatglm3-6b")
MIXTRAL = "Mixtral-8x7B-Instruct-v0.1"


def test_costs_are_those_of_the_degrees_that_ran(tmp_path: Path) -> None:
    """Mixtral does not fit on one GPU, where a roofline would stand in; on two it was measured."""
    words = (
        *ENSEMBLE,
        "workload.requests=4",
        f"workload.models=[{MIXTRAL}]",
        "hardware.gpu_count=2",
    )
    cell = first_cell_of(*words, f"results={tmp_path}")
    run_cell(cell)
    costs = json.loads((cell.folder / "provenance.json").read_text())["costs"]
    assert costs["source"] == {f"{MIXTRAL} tp2": "measured on Mixtral-8x7B-v0.1"}
    assert costs["fit_error"] == pytest.approx(cell.costs.error(MIXTRAL, 2)["decode_median"])
    assert cell.costs.label(MIXTRAL, 1) == "roofline"


def test_planners_do_not_know_a_draw_of_costs(tmp_path: Path) -> None:
    """What they foresee stays, what happens does not, and no draw is another."""
    words = (*ENSEMBLE, "workload.requests=40", "tracking=none", f"results={tmp_path}")
    found = [summary_of(first_cell_of(*words, f"hardware.cost_draw={draw}")) for draw in range(3)]
    assert len({one["planned_inference_s"] for one in found}) == 1
    assert len({one["inference_s"] for one in found}) == 3


def test_iterations_are_kept_on_demand(tmp_path: Path) -> None:
    cell = small(tmp_path, "record.iterations=true")
    run_cell(cell)
    assert len(pd.read_parquet(cell.folder / "iterations.parquet")) > 0


def test_a_trace_is_part_of_the_run(tmp_path: Path) -> None:
    cell = small(tmp_path, "record.trace=true")
    run_cell(cell)
    (cell.folder / "trace.json").unlink()
    assert damage_of(cell.folder) == "has no trace.json"


CHATS = (
    "workload.requests=40",
    "workload.starts_s=60",
    "workload.arrivals.rate_per_s=20",
    "tracking=none",
)


def summary_of(cell: Cell) -> dict[str, Any]:
    run_cell(cell)
    return dict(json.loads((cell.folder / "summary.json").read_text()))


@pytest.mark.slow
def test_draws_of_costs_are_served_with_the_predictor(tmp_path: Path) -> None:
    """Or an order by predictions would be that of arrivals, and so would its interval."""
    words = (*CHATS, f"results={tmp_path}", "name=draws", "predictor=oracle")
    for policy in ("fcfs_continuous", "ssjf_continuous"):
        for draw in range(4):
            run_cell(first_cell_of(*words, f"policy={policy}", f"hardware.cost_draw={draw}"))
    rows = over_draws(read_summaries(tmp_path / "draws")).set_index("config.chosen.policy")
    assert len(rows) == 2
    low, high = (rows[end] for end in span_of("jct_s_mean"))
    assert high["ssjf_continuous"] < low["fcfs_continuous"]


def test_objectives_are_counted_and_change_nothing_else(tmp_path: Path) -> None:
    words = (*CHATS, f"results={tmp_path}")
    plain = summary_of(first_cell_of(*words))
    limited = summary_of(first_cell_of(*words, "slo.ttft_s=0.5", "slo.scale=3"))
    assert 0 < limited["slo_attainment"] < 1
    assert limited["goodput_per_s"] == pytest.approx(
        limited["slo_attainment"] * limited["requests_per_s"]
    )
    assert plain["slo_attainment"] is None
    assert limited["jct_s_mean"] == plain["jct_s_mean"]


def test_figures_are_told_by_tenant_and_service(tmp_path: Path) -> None:
    """Two tenants of a trace, one asks twice as much of another model."""
    file = tmp_path / "trace.csv"
    lines = [f"0.{at},{5 + at},9,{'ab'[at % 2]},{MODELS[at % 2]}" for at in range(8)]
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,tenant,service", *lines]))
    words = ("workload=trace", f"workload.file={file}", "hardware=a100_80g_8", "tracking=none")
    found = summary_of(first_cell_of(*words, f"results={tmp_path}"))
    assert found["by"]["tenant"].keys() == {"a", "b"}
    assert found["by"]["service"].keys() == set(MODELS)
    assert found["by"]["tenant"]["a"]["requests"] == 4
    assert found["decisions"]["place"]["count"] >= 1


def test_a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    cell = small(tmp_path)
    run_cell(cell)
    before = (cell.folder / "summary.json").stat().st_mtime_ns
    run_cell(replace(cell, workload_factory=Failing(AssertionError("it was run again"))))
    assert (cell.folder / "summary.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_cell_that_fails_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    cell = replace(small(tmp_path), workload_factory=Failing(error))
    with pytest.raises(type(error)):
        run_cell(cell)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.runs.record.pq.write_table", interrupted)
    cell = small(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell)
    assert list(cell.folder.parent.iterdir()) == []


def test_a_warm_up_leaves_out_what_clients_send_first(tmp_path: Path) -> None:
    """Eight clients that begin over two seconds: what is sent from then on is counted."""
    words = ("workload=synthetic", "workload/arrivals=closed_loop", "workload.arrivals.clients=8")
    cell = first_cell_of(
        *words,
        *("workload.arrivals.ramp_up_s=2", "warm_up_s=2", "system=fixed", "policy=vllm"),
        *("hardware.gpu_count=1", "tracking=none", f"results={tmp_path}"),
    )
    run_cell(cell)
    requests = pd.read_parquet(cell.folder / "requests.parquet")
    summary = json.loads((cell.folder / "summary.json").read_text())
    late = requests[requests["arrival_s"] >= 2.0]
    assert 0 < len(late) < len(requests) == 100
    assert summary["requests"] == len(late)
    jct_s = (late["finished_s"] - late["arrival_s"]).mean()
    assert summary["jct_s_mean"] == pytest.approx(jct_s)
