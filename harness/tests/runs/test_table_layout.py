"""The printed table on terminals of every width and in a file, and what its seconds rest on."""

import pandas as pd
import pytest

from harness.runs.table import basis, column_of
from harness.tests.support.table import body, printed, row

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
        "simulated seconds, profile a100 (median error of a decode "
        "iteration: 1.2%, of the roofline of vLLM 0.3 in eager mode on models left out; "
        "1 of 2 pairs of model and tensor parallelism measured); "
        "extra s: planning, measured wall-clock on the machine that ran it"
    )


def test_what_the_facts_of_a_model_assume_is_said_once() -> None:
    costs = {
        f"costs.source./models/gemma.json tp{size}": "roofline; 5 of 6 layers; no images"
        for size in (1, 2)
    }
    said = basis(pd.DataFrame([row("ours", 1.0, costs)]))
    assert said.endswith("that ran it; assumed of gemma.json: 5 of 6 layers; no images")


def test_several_profiles_give_a_range_of_errors() -> None:
    costs = {"costs.profile": "h100", "costs.fit_error": 0.05, "costs.source.m2": "measured"}
    said = basis(pd.DataFrame([row("ours", 1.0), row("ours", 1.0, costs)]))
    assert "profile a100, h100" in said
    assert "1.2% to 5.0%" in said
    assert "1 of 2 pairs" in said


def test_an_unknown_error_says_so() -> None:
    said = basis(pd.DataFrame([row("ours", 1.0, {"costs.fit_error": None})]))
    assert "(median error of a decode iteration: unknown, of the roofline" in said


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
