"""Three words for a simulated figure, the bias of many, and what is no noise."""

from typing import Any

import pytest

from harness.report.agreement import (
    AIMS,
    AgreementWord,
    bias_text,
    compare,
    counts_text,
    late_text,
    pooled_bias,
    word_for,
)


def test_a_comparison_by_hand() -> None:
    """Measured 1 and 3, simulated 2.1: 5% off; each is 67% and 200% from the other."""
    runs = [dict.fromkeys(AIMS, value) for value in (1.0, 3.0)]
    rows = compare({"model": "tiny"}, runs, [dict.fromkeys(AIMS, 2.1)] * 2)
    assert [(row["model"], row["figure"]) for row in rows] == [("tiny", name) for name in AIMS]
    assert rows[0]["error"] == pytest.approx(0.05)
    assert rows[0]["noise"] == pytest.approx((2 / 3 + 2) / 2)


def test_what_the_speed_of_the_machine_explains_is_no_noise() -> None:
    """The second run took three times as long, and so it should at the speed of its minutes."""
    runs, guesses = ([dict.fromkeys(AIMS, it) for it in those] for those in ((1, 3), (0.9, 2.7)))
    (first, *_) = compare({}, runs, guesses)
    assert (first["measured"], first["simulated"]) == pytest.approx((2.0, 1.8))
    assert (first["error"], first["noise"]) == pytest.approx((-0.1, 0.0))


@pytest.mark.parametrize(
    ("error", "noise", "word"),
    [
        (0.02, 0.01, AgreementWord.AGREES),
        (-0.03, 0.03, AgreementWord.AGREES),
        (-0.031, 0.03, AgreementWord.DIFFERS),
        (0.02, 0.031, AgreementWord.INCONCLUSIVE),  # what noise alone satisfies
        (-0.2, 0.25, AgreementWord.INCONCLUSIVE),
        (-0.2, 0.19, AgreementWord.DIFFERS),
    ],
)
def test_a_word_for_every_figure(error: float, noise: float, word: AgreementWord) -> None:
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


def test_a_run_says_that_requests_were_taken_in_late() -> None:
    """1 ms of 50 ms is 2%, more than 1%; 0.1 ms of 100 ms is not."""
    assert late_text([(1e-3, 0.05), (1e-4, 0.1)]) == (
        "requests were taken in 0.55 ms late on average, in 1 of 2 runs later than 1% of the mean "
        "TTFT (at most 2.0%)"
    )
