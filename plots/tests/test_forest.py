"""Forest plots: narrow, one row per claim with a share, shares clipped to the shown range."""

import numpy as np

from harness.claims.paper import Claim, Judged
from harness.claims.verdicts import Verdict, Word
from plots import forest, style

SAYS = "mean JCT saved over a baseline with a long name, of all requests of all services"
TELEPHONE_PIXELS, LEAST_LETTER_PIXELS = 390, 9


def judged(share: float) -> Judged:
    claim = Claim(id="a", figure="fig1", where="", says=SAYS, quote="")
    return Judged(claim, Verdict(Word.UNTESTED, 1, 1, 1, share, share - 1, float("inf")))


def test_letters_can_be_read_on_a_telephone_and_labels_stay_clear_of_the_word() -> None:
    figure = forest.draw([judged(1.0)] * 60)
    figure.draw_without_rendering()
    width = figure.get_size_inches()[0] * style.DOTS_PER_INCH
    assert figure.get_size_inches()[1] * style.DOTS_PER_INCH <= 2000
    texts = figure.axes[0].texts
    assert len(texts) == 2 * 60
    letter_pixels = min(float(text.get_fontsize()) for text in texts) / 72 * style.DOTS_PER_INCH
    assert letter_pixels * TELEPHONE_PIXELS / width >= LEAST_LETTER_PIXELS
    label, word = (text.get_window_extent() for text in texts[:2])
    assert label.x0 >= 0
    assert label.x1 < word.x0
    assert word.x1 <= width


def test_a_share_beyond_the_range_is_an_arrow_at_its_edge() -> None:
    axes = forest.draw([judged(1.0), judged(9.0), judged(-9.0), judged(float("nan"))]).axes[0]
    found = [
        (line.get_marker(), float(np.asarray(line.get_xdata())[0]))
        for line in axes.lines
        if line.get_marker() != "None"
    ]
    assert found == [("o", 1.0), (">", forest.SHOWN[1]), ("<", forest.SHOWN[0])]
    assert [text.get_text() for text in axes.texts[1::2]] == ["untested"] * 3
    assert "1 claims" not in axes.get_xlabel()
    assert "1 claim has no size" in axes.get_xlabel()


def test_claims_without_a_size_have_an_empty_plot() -> None:
    assert forest.draw([judged(float("nan"))] * 2).axes[0].texts[:] == []
