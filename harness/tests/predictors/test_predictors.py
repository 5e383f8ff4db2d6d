"""Predictors that err: as much as asked for, or as a measured one did."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from harness.config.paths import PROFILES
from harness.interface.policies import LengthPredictor
from harness.predictors.empirical import Empirical
from harness.predictors.noisy import Noisy
from harness.tests.support.data import DATA
from harness.tests.support.serving import workload
from harness.tools.fitting.lengths import class_table, predictor_files
from harness.tools.fitting.stored import as_text
from harness.workloads.workload import Workload

BOUNDS = [42, 141, 294, 503]


def lengths(count: int = 4000) -> Workload:
    """Answers of 2 to 511 tokens, many of them short."""
    rng = np.random.default_rng(1)
    drawn = np.exp(rng.normal(4.9, 1.0, count)).clip(2, 511).astype(int)
    return workload([10] * count, drawn.tolist())


def predicted(predictor: LengthPredictor, load: Workload) -> np.ndarray:
    """What it says of every request."""
    ids = range(len(load))
    return np.array([predictor.predict(load.facts(i))[0].mean_tokens for i in ids])


def right(load: Workload, found: np.ndarray) -> float:
    """Share in the right class."""
    classes = np.digitize(load.output_tokens, BOUNDS), np.digitize(found, BOUNDS)
    return float((classes[0] == classes[1]).mean())


@pytest.mark.parametrize(("accuracy", "correlation"), [(0.615, 0.77), (0.8, 0.9), (0.5, 0.6)])
def test_noise_meets_accuracy_and_rank_correlation(accuracy: float, correlation: float) -> None:
    load = lengths()
    made = Noisy(
        accuracy=accuracy,
        rank_correlation=correlation,
        class_bounds_tokens=BOUNDS,
        latency_s=0.01,
    )
    found = predicted(made.of(load, 0), load)
    assert right(load, found) == pytest.approx(accuracy, abs=0.01)
    assert spearmanr(found, load.output_tokens).statistic == pytest.approx(correlation, abs=0.01)
    assert made.of(load, 0).predict(load.facts(0))[1] == 0.01
    assert (predicted(made.of(load, 0), load) == found).all()
    assert (predicted(made.of(load, 1), load) != found).any()


def test_no_prediction_is_above_what_a_request_may_answer() -> None:
    """Noise that doubles many an answer ends at the limit; both targets are met all the same."""
    made = Noisy(accuracy=0.615, rank_correlation=0.77, class_bounds_tokens=BOUNDS, latency_s=0.0)
    for limit, least in ((512, 512), (3000, 1000)):
        load = replace(lengths(), max_output_tokens=np.full(4000, limit))
        found = predicted(made.of(load, 0), load)
        assert least <= found.max() <= limit
        assert right(load, found) == pytest.approx(0.615, abs=0.01)
        assert spearmanr(found, load.output_tokens).statistic == pytest.approx(0.77, abs=0.01)


def test_targets_that_exclude_each_other_are_refused() -> None:
    made = Noisy(accuracy=0.95, rank_correlation=0.1, class_bounds_tokens=BOUNDS, latency_s=0.0)
    with pytest.raises(ValueError, match=r"rank_correlation=0\.1 cannot be met"):
        made.of(lengths(500), 0)


@pytest.mark.parametrize("name", ["accuracy", "rank_correlation", "latency_s"])
def test_impossible_numbers_are_refused(name: str) -> None:
    about = {"accuracy": 0.5, "rank_correlation": 0.5, "latency_s": 0.0} | {name: -1.0}
    with pytest.raises(ValueError, match=f"predictor.{name} is -1.0"):
        Noisy(class_bounds_tokens=BOUNDS, **about)


def test_the_measured_predictor_is_as_accurate_as_it_was() -> None:
    """Measured: 0.600 in five classes, rank correlation 0.774, 7.9 ms on average."""
    load = lengths()
    measured = Empirical(profile="lmsys_vicuna13b_class5").of(load, 0)
    found = predicted(measured, load)
    assert set(found) <= {19.0, 94.0, 221.0, 326.0, 376.0}
    assert 0.5 < right(load, found) < 0.75
    assert 0.6 < spearmanr(found, load.output_tokens).statistic < 0.85
    seconds = [measured.predict(load.facts(i))[1] for i in range(1000)]
    assert np.mean(seconds) == pytest.approx(0.0079, rel=0.05)


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match="No predictor profile is called 'bort'"):
        Empirical(profile="bort")


def test_a_table_by_hand() -> None:
    """Two lengths of each: the short ones are always class 0, the long ones half the time."""
    length = pd.Series([10, 10, 90, 90])
    classes, seconds = pd.Series([0, 0, 0, 1]), pd.Series([0.1, 0.1, 0.3, 0.3])
    made = class_table(length, classes, seconds, kind="by hand", source="here")
    assert (made["kind"], made["source"]) == ("by hand", "here")
    assert made["length_tokens"] == [10, 90]
    assert made["class_share"] == [[1.0, 0.0], [0.5, 0.5]]
    assert made["class_tokens"] == [10, 90]
    assert (made["latency_s"][0], made["latency_s"][-1]) == (0.1, 0.3)


@pytest.mark.skipif(not DATA.is_dir(), reason="the measurements are not on this machine")
def test_the_table_is_reproduced_byte_for_byte() -> None:
    for name, content in predictor_files(DATA):
        assert (PROFILES / "predictors" / name).read_text(encoding="utf-8") == as_text(content)
