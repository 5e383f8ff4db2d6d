"""Three words for a simulated figure, the bias of many, and a machine that drifts."""

import math
from typing import Any

import pytest

from harness.fidelity.agreement import (
    AIMS,
    Word,
    bias_text,
    compare,
    counts_text,
    pooled_bias,
    probe_s,
    probed,
    steady,
    word_for,
)


def test_a_comparison_by_hand() -> None:
    """Measured 1 and 3, simulated 2.1: 5% off; each is 67% and 200% from the other."""
    runs = [dict.fromkeys(AIMS, value) for value in (1.0, 3.0)]
    rows = compare({"model": "tiny"}, runs, dict.fromkeys(AIMS, 2.1))
    assert [(row["model"], row["figure"]) for row in rows] == [("tiny", name) for name in AIMS]
    assert rows[0]["error"] == pytest.approx(0.05)
    assert rows[0]["noise"] == pytest.approx((2 / 3 + 2) / 2)


@pytest.mark.parametrize(
    ("error", "noise", "word"),
    [
        (0.02, 0.01, Word.AGREES),
        (-0.03, 0.03, Word.AGREES),
        (-0.031, 0.03, Word.DIFFERS),
        (0.02, 0.031, Word.INCONCLUSIVE),  # what noise alone satisfies
        (-0.2, 0.25, Word.INCONCLUSIVE),
        (-0.2, 0.19, Word.DIFFERS),
    ],
)
def test_a_word_for_every_figure(error: float, noise: float, word: Word) -> None:
    assert word_for({"error": error, "noise": noise, "aim": 0.03}) is word


def _rows(*ratios: float, figure: str = "makespan_s") -> list[dict[str, Any]]:
    return [
        {"figure": figure, "simulated": r, "measured": 1.0, "error": r - 1, "noise": 0, "aim": 0.03}
        for r in ratios
    ]


def test_errors_that_lean_one_way_do_not_cancel_and_others_do() -> None:
    """Twice as long and half as long are no bias; three times 10% short are one of 10%."""
    both = pooled_bias(_rows(2.0, 0.5), "makespan_s")
    assert both.value == pytest.approx(0.0)
    assert both.ends[0] < 0 < both.ends[1]
    short = pooled_bias(_rows(0.9, 0.9, 0.9), "makespan_s")
    assert (short.value, short.low, short.high) == pytest.approx((-0.1, -0.1, -0.1))
    assert bias_text(short) == "-10.0% [-10.0, -10.0]"
    assert pooled_bias(_rows(0.9) + _rows(5.0, figure="jct_s_mean"), "makespan_s").count == 1
    assert counts_text(_rows(0.9, 1.0, 1.01)) == "of 3 figures: 2 agrees, 1 differs, 0 inconclusive"


def test_what_the_machine_added_is_divided_out() -> None:
    """The same run while the machine takes one, two and four times as long for a probe."""
    runs = {
        "a": [({"x_s": 10.0 * slower}, 0.1 * slower) for slower in (1.0, 2.0)],
        "b": [({"x_s": 3.0 * slower}, 0.1 * slower) for slower in (2.0, 4.0)],
    }
    found = steady(runs)
    assert [run["x_s"] for run in found["a"]] == pytest.approx([20.0, 20.0])
    assert [run["x_s"] for run in found["b"]] == pytest.approx([6.0, 6.0])


def test_a_run_is_between_two_probes() -> None:
    seconds, mean_s = probed(lambda: {"x_s": 2.5})
    assert seconds == {"x_s": 2.5}
    assert 0 < mean_s < math.inf
    assert probe_s() > 0
