import re
from collections.abc import Mapping, Sequence

from harness.tests.support.table import body, printed, row

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


def test_requests_that_a_run_left_are_shown() -> None:
    """Of two seeds one has left three."""
    rows = [row("ours", 10.0) | {"unfinished": left} for left in (0.0, 3.0)]
    lines = printed(rows, [{"system": "ours", "seed": seed} for seed in (0, 1)])
    assert "unfinished" in " ".join(lines)
    assert body(lines)[0][:3] == ["ours", "2", "10.0"]
    assert "unfinished" not in " ".join(printed(rows[:1], [{"system": "ours"}]))


def test_an_interval_stands_beside_the_figure_it_is_of() -> None:
    """Of idle GPU seconds alone there are draws; end-to-end seconds have no draws."""
    span = {"uncertainty.gpu_idle_s.low": 12000.0, "uncertainty.gpu_idle_s.high": 13000.4}
    lines = printed([row("ours", 1234.56) | span], [{}], {})
    cells = ["ours", "1,234.6", "0.25", "1,234.8", "12,346", "12,000", "to", "13,000", "20"]
    assert body(lines) == [cells]


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
        ["ours", "0.0123", "4.00", "1.00", "0.260"],
        ["theirs", "1,234.5000", "10.00", "2.50", "0.500"],
    ]


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
