"""Forest plots: one row per claim, at most a screen, shares clipped to the shown range."""

import numpy as np

from harness.claims.judge import Judged
from harness.claims.paper import Claim
from harness.claims.verdicts import Verdict, Word
from plots import forest, style


def judged(share: float) -> Judged:
    claim = Claim(id="a", figure="fig1", where="", says="JCT saved", quote="")
    return Judged(claim, Verdict(Word.HOLDS, 1, 1, 1, share, share - 1, float("inf")))


def test_sixty_claims_fit_a_screen() -> None:
    figure = forest.draw([judged(1.0)] * 60)
    assert figure.get_size_inches()[1] * style.DOTS_PER_INCH <= 1000
    assert len(figure.axes[0].get_yticks()) == 60


def test_a_share_beyond_the_range_is_an_arrow_at_its_edge() -> None:
    axes = forest.draw([judged(1.0), judged(9.0), judged(-9.0), judged(float("nan"))]).axes[0]
    found = [
        (line.get_marker(), float(np.asarray(line.get_xdata())[0]))
        for line in axes.lines
        if line.get_marker() != "None"
    ]
    assert found == [("o", 1.0), (">", forest.SHOWN[1]), ("<", forest.SHOWN[0])]
    assert [text.get_text() for text in axes.texts] == ["holds"] * 4
