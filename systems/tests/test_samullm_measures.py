"""Run measures of SamuLLM's claims, by hand."""

import pandas as pd
import pytest

from harness.tests.support.run_folders import chain_run, run_with
from systems.samullm import measures


def test_what_figures_show_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary loads on one GPU, then on two; an ensemble beside it ends at 4 s."""
    run = chain_run(planned_s=1.0 + 10.0)  # the first model has loaded at 1 s
    assert measures.plan_changes(run) == 1
    # 3 s on one GPU, then 4 s on two, of which one has done after 3 s.
    assert measures.gpu_seconds(run, service=measures.SUMMARY) == pytest.approx(3 + 2 * 4)
    assert measures.summariser_gpus_at_end(run) == 2
    assert measures.summariser_gpus_kept(run) == 1
    assert measures.summarised_share(run) == 1.0
    monkeypatch.setattr(measures, "ENSEMBLED_S", 4.0)
    assert measures.summarised_share(run) == 1 / 3
    assert measures.ensembling_is_done(run) == 1.0
    assert measures.computing_s(run) == pytest.approx(8)
    assert measures.computing_error(run) == pytest.approx(10 / 8 - 1)
    requests = run.requests.assign(service=measures.SUMMARISER)
    assert measures.chunks_of(run_with(requests=requests)) == (2, 1, 1)


def test_iterations_that_were_run_ahead_count_one_by_one() -> None:
    """One with three requests in 2 s, then two alike with two requests in 3 s together."""
    steps = {"iterations": [1, 2], "duration_s": [2.0, 3.0], "prefill_requests": [1, 0]}
    run = run_with(iterations=pd.DataFrame(steps | {"decode_requests": [2, 2]}))
    assert measures.running_requests(run) == (3, 2, 2)
    assert measures.iterations_s(run) == pytest.approx(5.0)


def test_which_gpus_summarise_and_evaluate() -> None:
    """Two GPUs summarise until 9 s; one evaluates beside them, two more when they have done."""
    summary, evaluator = measures.SUMMARISER, measures.EVALUATOR
    rows = [
        (0, f"{summary}@0", 1.0, 5.0),
        (1, f"{summary}@1", 1.0, 9.0),
        (2, f"{evaluator}@0", 4.0, 12.0),
        (0, f"{evaluator}@1", 9.0, 12.0),
        (1, f"{evaluator}@1", 9.0, 12.0),
    ]
    spans = pd.DataFrame(rows, columns=["gpu", "group", "start_s", "end_s"])
    run = run_with(gpu=spans.assign(use="busy"))
    assert measures.summarising_gpus(run) == 2
    assert measures.evaluator_gpus_beside(run) == 1
    assert measures.summarising_s(run) == 9.0
    assert measures.after_summaries_s(run) == 3.0


@pytest.mark.parametrize(("ensembled_s", "share"), [(754.0, 0.5), (756.0, 0.0)])
def test_nothing_is_completed_besides_an_ensembling_that_is_not_done(
    ensembled_s: float, share: float
) -> None:
    """Two of four answers are there by 750 s, one of them an evaluation."""
    summary = measures.SUMMARY
    rows = [(summary, 100.0), (measures.EVALUATOR, 200.0), (summary, 800.0), (summary, 900.0)]
    requests = pd.DataFrame(
        [*rows, ("dolly-v2-12b", ensembled_s)], columns=["service", "finished_s"]
    )
    run = run_with(requests=requests)
    assert measures.summarised_share(run) == share
    assert measures.ensembling_is_done(run) == (share > 0)


def test_when_the_summary_model_loads_first() -> None:
    rows = [("dolly-v2-12b@0", 1.0), (f"{measures.SUMMARY}@0", 4.0), (f"{measures.SUMMARY}@1", 3.0)]
    loads = pd.DataFrame(rows, columns=["group", "start_s"])
    run = run_with(gpu=loads.assign(use="loading", end_s=9.0, gpu=0))
    assert measures.summariser_loads_after_s(run) == 2.0
