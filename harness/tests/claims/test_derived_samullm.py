"""What the figures show of a run, by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.claims.derived import samullm
from harness.tests.support.run_folders import write_chain_run


def test_what_figures_show_of_a_run_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_chain_run(tmp_path / "run")
    summariser = f"{samullm.SUMMARISER}~summary"
    again = [samullm.loads_again(run, service=name) for name in (summariser, "koala")]
    assert again == [1.0, 0.0]
    # 3 s on one GPU, then 4 s on two, of which one has done after 3 s.
    assert samullm.gpu_seconds(run, service=summariser) == pytest.approx(3 + 2 * 4)
    assert samullm.summariser_gpus_at_end(run) == 2
    assert samullm.summariser_gpus_kept(run) == 1
    assert samullm.summarised_share(run) == 1.0
    monkeypatch.setattr(samullm, "ENSEMBLED_S", 4.0)
    assert samullm.summarised_share(run) == 1 / 3
    assert samullm.summarised_tokens_share(run) == 10 / 40
    assert samullm.summaries_share(run) == 1 / 3
    assert samullm.ensembling_is_done(run) == 1.0
    assert samullm.computing_s(run) == pytest.approx(8)
    gpu = pd.read_parquet(run / "gpu.parquet")
    begins_s = gpu["start_s"][gpu["use"] == "busy"].min()
    planned = {"planned_inference_s": begins_s + 10.0}
    monkeypatch.setattr(samullm, "summary_of", lambda _: planned)
    assert samullm.computing_error(run) == pytest.approx(10 / 8 - 1)
    planned["planned_inference_s"] = None
    assert np.isnan(samullm.computing_error(run))
    requests = pd.read_parquet(run / "requests.parquet")
    requests.assign(service="vicuna-13b-v1.5").to_parquet(run / "requests.parquet")
    assert samullm.chunks_of(run) == (2, 1, 1)
    assert samullm.chunks_median(run) == 1
    assert samullm.chunks_longest(run) == 2


def test_models_are_those_of_table_1() -> None:
    """By their place, as claims of figure 9 ask for them."""
    again = [getattr(samullm, f"{place}_again") for place in ("first", "third", "fifth")]
    assert [one.keywords["service"].partition("-")[0] for one in again] == [
        *("Llama", "WizardLM", "Mistral"),
    ]
    assert samullm.second_gpu_s.keywords["service"].startswith("Mixtral")


def test_iterations_that_were_run_ahead_count_one_by_one(tmp_path: Path) -> None:
    """One with three requests in 2 s, then two alike with two requests in 3 s together."""
    pd.DataFrame(
        {
            "iterations": [1, 2],
            "prefill_requests": [1, 0],
            "decode_requests": [2, 2],
            "duration_s": [2.0, 3.0],
        }
    ).to_parquet(tmp_path / "iterations.parquet")
    assert samullm.running_requests(tmp_path) == (3, 2, 2)
    assert samullm.iterations_s(tmp_path) == pytest.approx(5.0)


def _run(folder: Path, system: str, **workload: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"system": {"name": system}, "workload": workload})
    )
    (folder / "summary.json").write_text(
        json.dumps(
            {
                "inference_s": 1000.0,
                "extra_s": 25.0,
                "end_to_end_s": 125.0,
                "gpu_idle_s": 30.0,
                "gpu_loading_s": 4.0,
            }
        )
    )
    return folder


def test_planning_as_printed_and_idle_gpus_by_hand(tmp_path: Path) -> None:
    """At 5,500 requests half way between the least and the most that section 5.1 prints.

    Of Min-heuristic's 205 s no more than 9.5% are planning; a part alone is planned alone.
    """
    parts = {"summary": {"documents": 100}, "ensemble": {"requests": 5500}}
    mixed = _run(tmp_path / "mixed" / "a", "min_heuristic", parts=parts)
    assert samullm.end_to_end_printed_s(mixed) == pytest.approx(1000 / (1 - 0.095))
    for part, extra_s in (("summary", 27.8), ("ensemble", 46.5)):
        alone = _run(tmp_path / "mixed" / part, "min_heuristic", parts=parts, only=[part])
        assert samullm.end_to_end_printed_s(alone) == pytest.approx(1000.0 + extra_s)
    assert samullm.idle_or_loading_s(mixed) == 34.0
    for requests, extra_s in ((1000, 22.0), (5500, 45.5), (10_000, 69.0)):
        run = _run(tmp_path / "ensembling" / str(requests), "samullm", requests=requests)
        assert samullm.end_to_end_printed_s(run) == pytest.approx(1000.0 + extra_s)


def test_who_summarises_and_evaluates_where_by_hand(tmp_path: Path) -> None:
    """Two GPUs summarise until 9 s; one evaluates beside them, two more when they have done."""
    summary, evaluator = samullm.SUMMARISER, samullm.EVALUATOR
    rows = [
        (0, f"{summary}@0", 1.0, 5.0),
        (1, f"{summary}@1", 1.0, 9.0),
        (2, f"{evaluator}@0", 4.0, 12.0),
        (0, f"{evaluator}@1", 9.0, 12.0),
        (1, f"{evaluator}@1", 9.0, 12.0),
    ]
    spans = pd.DataFrame(rows, columns=["gpu", "group", "start_s", "end_s"])
    spans.assign(use="busy").to_parquet(tmp_path / "gpu.parquet")
    assert samullm.summarising_gpus(tmp_path) == 2
    assert samullm.evaluator_gpus_beside(tmp_path) == 1
    assert samullm.summarising_s(tmp_path) == 9.0
    assert samullm.after_summaries_s(tmp_path) == 3.0


def test_what_is_completed_besides_the_ensembling_by_hand(tmp_path: Path) -> None:
    """Two of four answers are there by 750 s, one of an evaluator; ensembled by 754 s or not."""
    summary = f"{samullm.SUMMARISER}~summary"
    rows = [
        (summary, 100.0, 10),
        (samullm.EVALUATOR, 200.0, 20),
        (summary, 800.0, 30),
        (summary, 900.0, 40),
        ("dolly-v2-12b", 754.0, 5),
    ]
    requests = pd.DataFrame(rows, columns=["service", "finished_s", "output_tokens"])
    requests.to_parquet(tmp_path / "requests.parquet")
    assert samullm.summarised_share(tmp_path) == 0.5
    assert samullm.summarised_tokens_share(tmp_path) == 0.3
    assert samullm.summaries_share(tmp_path) == pytest.approx(1 / 3)
    assert samullm.summarised_by_own_share(tmp_path) == 0.5
    requests.loc[4, "finished_s"] = 150.0
    requests.to_parquet(tmp_path / "requests.parquet")
    assert samullm.summarised_by_own_share(tmp_path) == 0.25
    requests.loc[4, "finished_s"] = 756.0
    requests.to_parquet(tmp_path / "requests.parquet")
    assert samullm.ensembling_is_done(tmp_path) == 0.0
    for share in ("summarised_share", "summarised_tokens_share", "summaries_share"):
        assert getattr(samullm, share)(tmp_path) == 0.0
    assert samullm.summarised_by_own_share(tmp_path) == 0.5


def test_when_the_summary_model_loads_first_by_hand(tmp_path: Path) -> None:
    rows = [("dolly-v2-12b@0", 1.0), (f"{samullm.SUMMARISER}~summary@0", 4.0)]
    rows += [(f"{samullm.SUMMARISER}~summary@1", 3.0)]
    loads = pd.DataFrame(rows, columns=["group", "start_s"])
    loads.assign(use="loading", end_s=9.0, gpu=0).to_parquet(tmp_path / "gpu.parquet")
    assert samullm.summariser_loads_after_s(tmp_path) == 2.0
