import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from harness.runs.table import basis, column_of, print_cells

COMPARE = {"axis": "system", "reference": "ours"}
SHOWS = ("inference_s", "extra_s", "end_to_end_s", "gpu_idle_s", "gpu_loading_s")


def row(system: str, inference_s: float, costs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A summary as it is read back, with a quarter of a second of planning."""
    return {
        "config.system.name": system,
        "inference_s": inference_s,
        "extra_s": 0.25,
        "end_to_end_s": inference_s + 0.25,
        "gpu_idle_s": 12345.6,
        "gpu_loading_s": 20.0,
        "costs.profile": "a100",
        "costs.fit_error": 0.012,
        "costs.source.m1": "measured",
        "costs.source.m2": "roofline",
    } | dict(costs or {})


def printed(
    rows: Sequence[dict[str, Any]],
    settings: Sequence[Mapping[str, object]],
    compare: dict[str, Any] | None = None,
    *,
    terminal: int | None = None,
    shows: Sequence[str] = SHOWS,
) -> list[str]:
    """Lines as they come out, without styles; a file unless a terminal's width is given."""
    names = [f"run{place}" for place in range(len(rows))]
    out = io.StringIO()
    console = Console(
        file=out,
        width=terminal or 80,
        force_terminal=terminal is not None,
        color_system=None,
        no_color=True,
        highlight=False,
    )
    by_run = dict(zip(names, settings, strict=True))
    print_cells(
        pd.DataFrame(rows, index=names),
        by_run,
        COMPARE if compare is None else compare,
        shows=shows,
        console=console,
    )
    plain = out.getvalue()
    for style in ("\x1b[1m", "\x1b[0m", "\x1b[2;3m"):
        plain = plain.replace(style, "")
    return plain.splitlines()


def body(lines: list[str]) -> list[list[str]]:
    """Words of the rows between the rule and the caption."""
    rule = next(place for place, line in enumerate(lines) if line.startswith("─"))
    return [line.split() for line in lines[rule + 1 : -1]]


TWO_BY_TWO = (
    [row("theirs", 30.0), row("ours", 10.0), row("theirs", 90.0), row("ours", 20.0)],
    [
        {"system": "theirs", "workload.requests": 2000},
        {"system": "ours", "workload.requests": 2000},
        {"system": "theirs", "workload.requests": 100},
        {"system": "ours", "workload.requests": 100},
    ],
)


def test_rows_are_by_setting_and_the_reference_comes_first() -> None:
    assert [line[:3] for line in body(printed(*TWO_BY_TWO))] == [
        ["2,000", "ours", "10.0"],
        ["2,000", "theirs", "30.0"],
        ["100", "ours", "20.0"],
        ["100", "theirs", "90.0"],
    ]


def test_a_ratio_is_to_the_reference_in_the_same_setting() -> None:
    """30 / 10 and 30.25 / 10.25; 90 / 20 and 90.25 / 20.25."""
    lines = body(printed(*TWO_BY_TWO))
    assert [(line[3], line[6]) for line in lines] == [
        ("1.00", "1.00"),
        ("3.00", "2.95"),
        ("1.00", "1.00"),
        ("4.50", "4.46"),
    ]


def test_figures_of_a_row() -> None:
    lines = printed([row("ours", 1234.56)], [{}], {})
    assert lines[-3].strip().startswith("─")
    assert body(lines) == [["ours", "1,234.6", "0.25", "1,234.8", "12,346", "20"]]
    assert lines[-1].strip() == "1 seed"


def test_seeds_are_averaged_and_counted() -> None:
    rows = [row("ours", 10.0), row("ours", 20.0), row("theirs", 30.0), row("theirs", 60.0)]
    places: list[dict[str, object]] = [
        {"system": name, "seed": seed} for name in ("ours", "theirs") for seed in (0, 1)
    ]
    lines = printed(rows, places)
    assert [line[:3] for line in body(lines)] == [
        ["ours", "15.0", "1.00"],
        ["theirs", "45.0", "3.00"],
    ]
    assert (
        lines[-1].strip() == "means over 2 seeds; x: times that of system ours, in the same setting"
    )


def test_unequal_numbers_of_seeds_are_a_column() -> None:
    rows = [row("ours", 10.0), row("ours", 20.0), row("theirs", 30.0)]
    places: list[dict[str, object]] = [
        {"system": "ours", "seed": 0},
        {"system": "ours", "seed": 1},
        {"system": "theirs", "seed": 0},
    ]
    lines = printed(rows, places)
    assert "seeds" in " ".join(lines)
    assert [line[:2] for line in body(lines)] == [["ours", "2"], ["theirs", "1"]]
    assert "over the seeds" in lines[-1]


def test_without_the_reference_there_is_no_ratio() -> None:
    rows = [row("theirs", 30.0), row("others", 10.0)]
    lines = printed(rows, [{"system": "theirs"}, {"system": "others"}])
    assert [line[2] for line in body(lines)] == ["-", "-"]


def test_one_value_on_the_compared_axis_is_no_comparison() -> None:
    lines = printed([row("ours", 1.0)], [{"workload.requests": 5}])
    assert body(lines) == [["ours", "1.0", "0.25", "1.2", "12,346", "20"]]
    assert "x:" not in lines[-1]


def test_any_axis_can_be_compared() -> None:
    rows = [row("only", 80.0), row("only", 10.0)]
    places: list[dict[str, object]] = [{"hardware.gpu_count": 1}, {"hardware.gpu_count": 8}]
    lines = printed(rows, places, {"axis": "hardware.gpu_count", "reference": 8})
    assert [line[:4] for line in body(lines)] == [
        ["only", "8", "10.0", "1.00"],
        ["only", "1", "80.0", "8.00"],
    ]
    assert "gpu count 8" in lines[-1]


def test_chosen_figures_are_shown_in_their_order() -> None:
    """Those with a known name have it, others their own; times where they can be compared."""
    rows = [
        row("ours", 1.0) | {"jct_s_mean": 4.0, "tpot_s_mean": 0.01234, "other_share": 0.26},
        row("theirs", 1.0) | {"jct_s_mean": 10.0, "tpot_s_mean": 1234.5, "other_share": 0.5},
    ]
    settings = [{"system": "ours"}, {"system": "theirs"}]
    lines = printed(rows, settings, shows=("tpot_s_mean", "jct_s_mean", "other_share"))
    header = next(place for place, line in enumerate(lines) if line.startswith("─")) - 1
    columns = re.split("  +", lines[header].strip())
    assert columns == ["system", "mean TPOT s", "mean JCT s", "x", "other share"]
    assert body(lines)[:2] == [
        ["ours", "0.0123", "4.0", "1.00", "0.3"],
        ["theirs", "1,234.5000", "10.0", "2.50", "0.5"],
    ]


@pytest.mark.parametrize(
    ("shows", "said"),
    [
        ("jct_s_mean", "No figure of a run is called 'jct_s_mean'; known: config.system.name, "),
        ("inference", "No figure of a run is called 'inference'; closest: inference_s"),
    ],
)
def test_a_figure_that_no_run_has_is_refused(shows: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^No figure of a run is called") as raised:
        printed([row("ours", 1.0)], [{}], shows=("inference_s", shows))
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


BY_POLICY = {"axis": "policy", "reference": "plain"}


def times(settings: Sequence[Mapping[str, object]], seconds: Sequence[float]) -> list[str]:
    """Times the plain policy's, of runs that differ in the settings."""
    rows = [row("s", value) for value in seconds]
    # The caption of a narrow table has several lines.
    lines = body(printed(rows, settings, BY_POLICY, shows=("inference_s",)))[: len(rows)]
    return [" ".join(line) for line in lines]


def test_a_reference_with_one_value_where_others_have_several_is_found() -> None:
    """The plain policy has no use for a guess; rates are its own affair."""
    settings = [
        {"policy": policy, "guess": guess, "rate": rate}
        for policy, guess in (("plain", "none"), ("clever", "good"), ("clever", "best"))
        for rate in (1, 2)
    ]
    assert times(settings, [10.0, 40.0, 5.0, 10.0, 1.0, 2.0]) == [
        "none 1 s plain 10.0 1.00",
        "none 2 s plain 40.0 1.00",
        "good 1 s clever 5.0 0.50",
        "good 2 s clever 10.0 0.25",
        "best 1 s clever 1.0 0.10",
        "best 2 s clever 2.0 0.05",
    ]


def test_where_the_reference_has_some_of_the_values_it_is_compared_at_those() -> None:
    settings = [{"policy": "plain", "rate": rate} for rate in (1, 2)]
    settings += [{"policy": "clever", "rate": rate} for rate in (1, 2, 3)]
    assert times(settings, [10.0, 40.0, 5.0, 10.0, 1.0]) == [
        "1 s plain 10.0 1.00",
        "1 s clever 5.0 0.50",
        "2 s plain 40.0 1.00",
        "2 s clever 10.0 0.25",
        "3 s clever 1.0 -",
    ]


def test_lists_and_choices_can_be_axes() -> None:
    rows = [row("ours", 1.0), row("ours", 2.0)]
    places: list[dict[str, object]] = [
        {"policy": "a", "x.sizes": [1]},
        {"policy": "b", "x.sizes": [2]},
    ]
    lines = body(printed(rows, places))
    assert [line[:3] for line in lines] == [["a", "[1]", "ours"], ["b", "[2]", "ours"]]


def test_axes_that_end_alike_keep_their_whole_name() -> None:
    rows = [row("ours", 1.0), row("ours", 2.0)]
    places: list[dict[str, object]] = [{"a.size": 1, "b.size": 3}, {"a.size": 2, "b.size": 4}]
    assert "a.size   b.size   system" in "\n".join(printed(rows, places))


SYSTEMS = ("ours", "a_longer_name", "another")
WIDE = (
    [row(name, 12345.6) for name in SYSTEMS for _ in range(2)],
    [
        {"system": name, "workload.max_output_tokens": tokens, "workload.requests": 10 * tokens}
        for name in SYSTEMS
        for tokens in (256, 512)
    ],
)


def test_a_file_gets_a_line_for_a_row_and_no_word_is_cut() -> None:
    lines = printed(*WIDE)
    assert len(body(lines)) == 6
    header = next(place for place, line in enumerate(lines) if line.startswith("─")) - 1
    for name in ("max output tokens", "inference s", "end to end s", "GPU loading s"):
        assert name in lines[header]


def test_a_narrow_terminal_shows_everything_in_80_columns() -> None:
    lines = printed(*WIDE, terminal=80)
    assert max(map(len, lines)) <= 80
    assert body(lines)[1] == [
        *("256", "2,560", "a_longer_name", "12,345.6", "1.00", "0.25", "12,345.9", "1.00"),
        *("12,346", "20"),
    ]
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [30, 60])
def test_what_fits_nowhere_breaks_and_is_not_cut(width: int) -> None:
    lines = printed(*WIDE, terminal=width)
    assert [len(line) for line in body(lines)] == [10] * 6
    assert "…" not in "".join(lines)


def test_a_wide_terminal_keeps_headers_on_one_line() -> None:
    assert any("max output tokens" in line for line in printed(*WIDE, terminal=200))


def test_what_the_seconds_rest_on() -> None:
    said = basis(pd.DataFrame([row("ours", 1.0)]))
    assert said == (
        "simulated seconds, profile a100 (median error of a decode iteration: 1.2%; "
        "1 of 2 models measured); "
        "extra s: planning, measured wall-clock on the machine that ran it"
    )


def test_several_profiles_give_a_range_of_errors() -> None:
    costs = {"costs.profile": "h100", "costs.fit_error": 0.05, "costs.source.m2": "measured"}
    said = basis(pd.DataFrame([row("ours", 1.0), row("ours", 1.0, costs)]))
    assert "profile a100, h100" in said
    assert "1.2% to 5.0%" in said
    assert "1 of 2 models" in said


def test_an_unknown_error_says_so() -> None:
    said = basis(pd.DataFrame([row("ours", 1.0, {"costs.fit_error": None})]))
    assert "(median error of a decode iteration: unknown;" in said


def test_where_an_axis_is_found_in_the_summaries() -> None:
    assert column_of("system") == "config.system.name"
    assert column_of("workload.requests") == "config.workload.requests"


def test_measured_beside_simulated_names_both() -> None:
    rows = pd.DataFrame(
        {
            "engine": ["measured on vLLM 1, cpu", "simulated"],
            "costs.profile": ["p", "p"],
            "costs.fit_error": [0.02, 0.02],
            "costs.source.m": ["measured", "measured"],
        }
    )
    assert basis(rows).startswith(
        "seconds measured on vLLM 1, cpu, and where the engine says so simulated seconds, profile p"
    )
