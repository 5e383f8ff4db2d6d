"""Max and Min as section 5 of arXiv 2503.16893 describes them, on made-up rates."""

import pytest

from baselines.gpu_heuristics import MaxStages, MinStages
from harness.planning.plans import Plan, Stage
from harness.tests.support.rate_preview import RatePreview


def _scaling(rate: float, gpus: int, *, smallest: int = 1) -> dict[Plan, float]:
    """Plans of tensor parallel 1, 2 and 4 from `smallest` on; more GPUs do more, never in full.

    Tensor parallelism does a little better than as many copies.
    """
    return {
        Plan(dp, tp): rate * (dp * tp) ** 0.8 * (1.05 if tp > 1 else 1.0)
        for tp in (1, 2, 4)
        if tp >= smallest
        for dp in range(1, gpus // tp + 1)
    }


def _preview(rates: dict[str, dict[Plan, float]], work: float = 100.0) -> RatePreview:
    """Much work for everybody; the later, the more."""
    return RatePreview({name: work * (1 + i) for i, name in enumerate(rates)}, rates)


def _gpus(stage: Stage) -> dict[str, int]:
    return {str(service): plan.gpus for service, plan in stage.items()}


def test_max_runs_one_model_at_a_time_under_its_fastest_plan() -> None:
    """On four GPUs A does 9 under (4, 1), 7 under (2, 2), 8 under (1, 4); B 5, 6 and 4.

    A plan of fewer GPUs is not used even where it is faster (C: 50 on one GPU, 10 on four).
    """
    four = (Plan(4, 1), Plan(2, 2), Plan(1, 4))
    rates = {
        "A": dict(zip(four, (9.0, 7.0, 8.0), strict=True)),
        "B": dict(zip(four, (5.0, 6.0, 4.0), strict=True)),
        "C": {Plan(1, 1): 50.0, Plan(4, 1): 10.0},
    }
    preview = _preview(rates, 90.0)
    stages = MaxStages().plan(preview, 4)  # type: ignore[arg-type]
    assert stages == [{"A": Plan(4, 1)}, {"B": Plan(2, 2)}, {"C": Plan(4, 1)}]
    assert preview.passed_s == pytest.approx(90 / 9 + 180 / 6 + 270 / 10)


def test_min_gives_four_models_two_gpus_each() -> None:
    """Eight GPUs; two by tensor parallelism are 5% faster than two copies."""
    preview = _preview({name: _scaling(10.0, 8) for name in "ABCD"})
    stages = MinStages().plan(preview, 8)  # type: ignore[arg-type]
    assert stages[0] == dict.fromkeys("ABCD", Plan(1, 2))
    # A ends first: three are left, which get (3, 3, 2), and so on.
    assert [sorted(_gpus(stage).values()) for stage in stages[1:]] == [[2, 3, 3], [4, 4], [8]]


def test_min_splits_eight_gpus_among_three_as_three_three_two() -> None:
    """The third GPU is worth least to A, whose rate is lowest: A gets two."""
    preview = _preview({"A": _scaling(1.0, 8), "B": _scaling(10.0, 8), "C": _scaling(20.0, 8)})
    stages = MinStages().plan(preview, 8)  # type: ignore[arg-type]
    assert _gpus(stages[0]) == {"A": 2, "B": 3, "C": 3}


def test_min_runs_the_eight_of_nine_with_the_highest_throughput() -> None:
    """One GPU each; E, the slowest, waits until the first has ended."""
    names = "ABCDEFGHI"
    rates = {name: _scaling(5.0 if name == "E" else 10.0, 8) for name in names}
    stages = MinStages().plan(_preview(rates), 8)  # type: ignore[arg-type]
    assert _gpus(stages[0]) == {name: 1 for name in names if name != "E"}
    assert "E" in stages[1]
    assert len(stages[1]) == 8


@pytest.mark.parametrize("gpus", [4, 5, 6, 8])
def test_min_gives_a_model_that_needs_two_gpus_at_least_two(gpus: int) -> None:
    """Of an odd share it uses an even part."""
    rates = {"A": _scaling(10.0, 8), "B": _scaling(10.0, 8), "big": _scaling(1.0, 8, smallest=2)}
    stages = MinStages().plan(_preview(rates), gpus)  # type: ignore[arg-type]
    assert set(stages[0]) == {"A", "B", "big"}
    for stage in stages:
        assert sum(_gpus(stage).values()) <= gpus
        assert stage.get("big", Plan(1, 2)).tensor_parallel >= 2  # type: ignore[call-overload]


def test_min_without_preemption_splits_only_what_is_free() -> None:
    """Two GPUs for A (20), B (40) and C (60), 10 per second on one: C gets the GPU of A.

    When B ends C may not take its GPU, so it goes on with one.
    """
    rates = {name: {Plan(1, 1): 10.0, Plan(2, 1): 19.0} for name in "ABC"}
    preview = RatePreview({"A": 20.0, "B": 40.0, "C": 60.0}, rates, preemption=False)
    stages = MinStages().plan(preview, 2)  # type: ignore[arg-type]
    one = Plan(1, 1)
    assert [set(stage) for stage in stages] == [{"A", "B"}, {"B", "C"}, {"C"}]
    assert all(plan == one for stage in stages for plan in stage.values())
    assert preview.passed_s == pytest.approx(8.0)
