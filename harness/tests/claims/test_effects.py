"""Every helper by hand, on cells of a few runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.claims.effects import (
    ALL,
    PROBE,
    Cells,
    ClaimError,
    Effect,
    EffectKind,
    absolute,
    at_least,
    at_most,
    curve,
    equal,
    figures,
    joined,
    name_of,
    over_settings,
    ratio,
    reduction,
    share_of_seeds,
    share_ratio,
    trend,
)
from harness.runs.cells import Run
from harness.runs.record import write_run
from harness.tests.support.claims import cells_of
from harness.tests.support.run_folders import run_with

JCT = "jct_s_mean"
FAST, SLOW = {"system": "fast"}, {"system": "slow"}

CELLS = cells_of(
    ("system", "load", "seed"),
    *(("fast", 1, 0, 1.0), ("fast", 2, 0, 3.0), ("fast", 1, 1, 2.0), ("fast", 2, 1, 2.0)),
    *(("slow", 1, 0, 2.0), ("slow", 2, 0, 12.0), ("slow", 1, 1, 6.0), ("slow", 2, 1, 10.0)),
)
"""Ratios of slow over fast: 2 and 4 with seed 0, 3 and 5 with seed 1."""


def values(effect: Effect) -> object:
    return effect.samples.to_numpy().tolist()


def test_figures_have_a_row_per_seed_and_a_column_per_setting() -> None:
    found = figures(CELLS, JCT, SLOW, ["load"])
    assert found.index.tolist() == [0, 1]
    assert [*found.columns] == [1, 2]
    assert found.to_numpy().tolist() == [[2.0, 12.0], [6.0, 10.0]]
    single = figures(CELLS, JCT, SLOW | {"load": 2})
    assert (single.columns.tolist(), single[ALL].tolist()) == ([ALL], [12.0, 10.0])


def test_seeds_without_a_figure_at_every_setting_are_left_out() -> None:
    assert figures(CELLS.drop(index=0), JCT, FAST, ["load"]).index.tolist() == [1]
    unknown = CELLS.assign(**{JCT: [None, *CELLS[JCT][1:]]})
    assert figures(unknown, JCT, FAST, ["load"]).index.tolist() == [1]
    assert figures(unknown, JCT, FAST | {"load": 1}).index.tolist() == [1]


def test_a_figure_may_be_a_function_of_the_run_in_the_folder(tmp_path: Path) -> None:
    asked = []

    def length(run: Run) -> float:
        asked.append(run)
        return len(run.requests)

    runs = [run_with(requests=pd.DataFrame({"id": range(count)})) for count in (1, 2, 3)]
    write_run(tmp_path / "run", run_with({"n": 4.0}, requests=pd.DataFrame({"id": range(4)})))
    cells = CELLS.assign(
        folder=pd.Series([*runs, str(tmp_path / "run"), *[PROBE] * 4], dtype=object)
    )
    for _ in range(2):
        found = figures(cells, length, FAST, ["load"])
        assert found.to_numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert len(asked) == 3 + 4
    assert figures(cells, length, SLOW, ["load"]).to_numpy().tolist() == [[1, 1], [1, 1]]


def test_figures_of_several_selectors_are_added() -> None:
    assert figures(CELLS, JCT, [FAST, SLOW], ["load"]).to_numpy().tolist() == [[3, 15], [8, 12]]


def test_a_selector_that_fixes_a_setting_counts_at_all_of_its_values() -> None:
    found = over_settings(CELLS, JCT, of=SLOW, over=FAST | {"load": 1}, settings=["load"])
    assert values(found) == [[2.0, 12.0], [3.0, 5.0]]
    added = figures(CELLS, JCT, [SLOW, FAST | {"load": 2}], ["load"])
    assert added.to_numpy().tolist() == [[5.0, 15.0], [8.0, 12.0]]


def test_one_of_two_settings_may_be_fixed() -> None:
    cells = cells_of(
        ("system", "load", "gpus", "seed"),
        *(("fast", 1, 4, 0, 1.0), ("fast", 2, 4, 0, 2.0)),
        *(("slow", 1, 4, 0, 4.0), ("slow", 2, 4, 0, 6.0)),
        *(("slow", 1, 8, 0, 10.0), ("slow", 2, 8, 0, 14.0)),
    )
    found = over_settings(
        cells, JCT, of=SLOW, over=FAST | {"gpus": 4}, settings=["load", "gpus"]
    ).samples
    assert {name_of(name): found[name].item() for name in found} == {
        "1, 4": 4.0,
        "2, 4": 3.0,
        "1, 8": 10.0,
        "2, 8": 7.0,
    }


def test_only_settings_and_seeds_of_both_sides_count() -> None:
    cells = CELLS.drop(index=[3, 7])  # neither has load 2 with seed 1
    assert values(over_settings(cells, JCT, of=SLOW, over=FAST, settings=["load"])) == [[2, 4]]
    one_load = CELLS[(CELLS["system"] == "slow") | (CELLS["load"] == 1)]
    assert values(over_settings(one_load, JCT, of=SLOW, over=FAST, settings=["load"])) == [[2], [3]]


def test_a_ratio_is_of_averages() -> None:
    """Seed 0: (2 + 12) / (1 + 3); seed 1: (6 + 10) / (2 + 2)."""
    found = ratio(CELLS, JCT, of=SLOW, over=FAST, average_over=["load"])
    assert (found.kind, values(found)) == (EffectKind.RATIO, [[3.5], [4.0]])
    at_one = ratio(CELLS, JCT, of=SLOW | {"load": 1}, over=FAST | {"load": 1})
    assert values(at_one) == [[2.0], [3.0]]


def test_a_reduction_has_the_samples_of_its_ratio() -> None:
    found = reduction(CELLS, JCT, of=FAST, over=SLOW, average_over=["load"])
    assert (found.kind, values(found)) == (EffectKind.REDUCTION, [[4 / 14], [4 / 16]])


@pytest.mark.parametrize(
    ("met", "kind", "samples"),
    [
        # 0.64 and 0.60 over 0.32 and 0.30
        ((0.64, 0.32, 0.60, 0.30), EffectKind.RATIO, [2.0, 2.0]),
        ((0.64, 0.06, 0.60, 0.02), EffectKind.DIFFERENCE, [0.58, 0.58]),  # 4% on average
        ((0.64, 0.32, 0.60, 0.0), EffectKind.DIFFERENCE, [0.32, 0.60]),
    ],
)
def test_shares_near_0_have_no_ratio(
    met: tuple[float, ...], kind: EffectKind, samples: list[float]
) -> None:
    places = [(system, seed) for seed in (0, 1) for system in ("fast", "slow")]
    rows = [(*place, share) for place, share in zip(places, met, strict=True)]
    cells = cells_of(("system", "seed"), *rows)
    fast, slow = absolute(cells, JCT, FAST), absolute(cells, JCT, SLOW)
    found = share_ratio(fast, slow, paper=(0.5, 0.2))
    assert found.kind is kind
    assert found.samples[ALL].tolist() == pytest.approx(samples)
    assert found.printed == (pytest.approx(0.3) if kind is EffectKind.DIFFERENCE else None)


def test_shares_are_compared_at_every_setting() -> None:
    of, over = (at_least(CELLS, JCT, at, settings=["load"]) for at in (SLOW, FAST))
    found = share_ratio(of, over, by_setting=True)
    assert (found.kind, values(found)) == (EffectKind.RANGE, [[2.0, 4.0], [3.0, 5.0]])
    small = Effect(EffectKind.AT_LEAST, over.samples * [1.0, 0.01])  # at one of two settings
    assert share_ratio(of, small, by_setting=True).kind is EffectKind.DIFFERENCE


def test_ratios_over_settings() -> None:
    found = over_settings(CELLS, JCT, of=SLOW, over=FAST, settings=["load"])
    assert (found.kind, values(found)) == (EffectKind.RANGE, [[2.0, 4.0], [3.0, 5.0]])


def test_effects_are_joined_at_the_seeds_of_all() -> None:
    one = over_settings(CELLS, JCT, of=SLOW, over=FAST, settings=["load"])
    other = over_settings(CELLS[CELLS["seed"] == 1], JCT, of=FAST, over=SLOW, settings=["load"])
    found = joined(one, other)
    assert (found.kind, values(found)) == (EffectKind.RANGE, [[3.0, 5.0, 1 / 3, 1 / 5]])
    assert found.samples.columns.tolist() == ["0: 1", "0: 2", "1: 1", "1: 2"]


def test_values_and_bounds_are_the_figures_themselves() -> None:
    value = absolute(CELLS, JCT, SLOW, average_over=["load"])
    assert (value.kind, values(value)) == (EffectKind.ABSOLUTE, [[7.0], [8.0]])
    upper = at_most(CELLS, JCT, SLOW, settings=["load"])
    assert (upper.kind, values(upper)) == (EffectKind.AT_MOST, [[2.0, 12.0], [6.0, 10.0]])
    lower = at_least(CELLS, JCT, SLOW | {"load": 1})
    assert (lower.kind, values(lower)) == (EffectKind.AT_LEAST, [[2.0], [6.0]])


def test_what_makes_no_difference_is_a_ratio_at_every_setting() -> None:
    found = equal(CELLS, JCT, of=SLOW, over=FAST, settings=["load"])
    assert (found.kind, values(found)) == (EffectKind.EQUAL, [[2.0, 4.0], [3.0, 5.0]])


@pytest.mark.parametrize(("rising", "sign"), [(True, 1), (False, -1)])
def test_a_trend_is_the_last_ratio_over_the_first(rising: bool, sign: int) -> None:
    """Numbers are in order, whatever the order of the cells: 10 comes after 2."""
    cells = CELLS.replace({"load": {2: 10, 1: 2}}).iloc[::-1]
    found = trend(cells, JCT, of=SLOW, over=FAST, along="load", rising=rising)
    assert found.kind is EffectKind.TREND
    assert found.samples[ALL].to_list() == pytest.approx([sign * np.log(2), sign * np.log(5 / 3)])


def test_a_trend_may_be_averaged_over_another_setting() -> None:
    """Ratios from 1 to 2 with 4 GPUs and from 1 to 8 with 8: by 4 on geometric average."""
    rows = [
        ("slow", load, gpus, 0, value)
        for load, gpus, value in ((1, 4, 1.0), (2, 4, 2.0), (1, 8, 1.0), (2, 8, 8.0))
    ]
    rows += [("fast", load, gpus, 0, 1.0) for load in (1, 2) for gpus in (4, 8)]
    cells = cells_of(("system", "load", "gpus", "seed"), *rows)
    found = trend(cells, JCT, of=SLOW, over=FAST, along="load", rising=True, average_over=["gpus"])
    assert np.exp(found.samples[ALL].to_list()) == pytest.approx([4.0])


def test_a_trend_needs_two_numbers() -> None:
    sentence = "a trend along load needs two numbers; there are 1$"
    with pytest.raises(ClaimError, match=sentence):
        trend(CELLS[CELLS["load"] == 1], JCT, of=SLOW, over=FAST, along="load", rising=True)
    words = CELLS.replace({"load": {1: "low", 2: "high"}})
    with pytest.raises(ClaimError, match="needs two numbers; there are high, low"):
        trend(words, JCT, of=SLOW, over=FAST, along="load", rising=True)


def test_a_fact_must_be_so_at_every_setting() -> None:
    """Slow takes over three times as long: 2 and 4 times with seed 0, 3 and 5 with seed 1."""
    found = share_of_seeds(
        CELLS, lambda slow, fast: slow >= 3 * fast, (JCT, SLOW), (JCT, FAST), settings=["load"]
    )
    assert (found.kind, values(found)) == (EffectKind.FACT, [[False], [True]])
    at_two = share_of_seeds(CELLS, lambda slow: slow > 11, (JCT, SLOW | {"load": 2}))
    assert values(at_two) == [[True], [False]]


def test_facts_count_seeds_that_all_figures_have() -> None:
    found = share_of_seeds(
        CELLS.drop(index=0), lambda *_: True, (JCT, SLOW), (JCT, FAST), settings=["load"]
    )
    assert found.samples.index.tolist() == [1]


def test_a_curve_has_a_geometric_mean_and_interval_per_value() -> None:
    found = curve(CELLS, JCT, of=SLOW, over=FAST, along="load")
    assert found["value"].to_list() == pytest.approx([6**0.5, 20**0.5])
    # Two seeds: half width of the logarithm t(0.975, 1) * |difference| / 2
    half = np.exp(12.7062 * np.log(3 / 2) / 2)
    assert found[["low", "high"]].to_numpy()[0].tolist() == pytest.approx(
        [6**0.5 / half, 6**0.5 * half], rel=1e-4
    )


@pytest.mark.parametrize(
    ("cells", "figure", "at", "settings", "sentence"),
    [
        (CELLS, JCT, {"sytem": "fast"}, [], "No axis is called 'sytem'; closest: system"),
        (CELLS, JCT, FAST, ["laod"], "No axis is called 'laod'; closest: load"),
        (CELLS.drop(columns="seed"), JCT, FAST, ["load"], "No axis is called 'seed'"),
        (
            CELLS,
            "jct_s_men",
            FAST,
            ["load"],
            "No figure is called 'jct_s_men'; closest: jct_s_mean",
        ),
        (CELLS, JCT, {"system": "slw"}, [], "no cell has system=slw; there are fast, slow"),
        (CELLS, JCT, FAST, [], "4 cells have the same seed at .*fast.*; name more axes"),
    ],
)
def test_what_cells_do_not_have_is_one_sentence(
    cells: Cells, figure: str, at: dict[str, str], settings: list[str], sentence: str
) -> None:
    with pytest.raises(ClaimError, match=sentence) as raised:
        figures(cells, figure, at, settings)
    assert "\n" not in str(raised.value)


def test_an_effect_needs_a_seed_and_positive_ratios() -> None:
    apart = CELLS[(CELLS["system"] == "slow") != (CELLS["seed"] == 0)]
    with pytest.raises(ClaimError, match="no seed has its figures at every setting"):
        ratio(apart, JCT, of=SLOW, over=FAST, average_over=["load"])
    for value in (0.0, np.inf):
        with pytest.raises(ClaimError, match="a ratio of figures that are not positive"):
            Effect(EffectKind.RATIO, pd.DataFrame({ALL: [1.0, value]}))
    Effect(EffectKind.ABSOLUTE, pd.DataFrame({ALL: [0.0]}))
