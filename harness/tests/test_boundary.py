"""Settings on both sides of a limit: what the papers' files say, and a claim served in them."""

import pytest

from harness import boundary
from harness.boundary import MEASURED, SIMULATED, OnBothEngines
from harness.claims.paper import papers
from harness.conditions.outcomes import Outcome
from harness.conditions.space import read_spaces
from harness.config.paths import ROOT

STATED = [name for name in papers() if (ROOT / "systems" / name / "boundary.yaml").is_file()]


@pytest.mark.parametrize("paper", STATED)
def test_settings_are_whole_and_of_a_claim_with_a_map(paper: str) -> None:
    spaces = read_spaces(paper)
    for claim, asked in boundary.read_boundaries(paper).items():
        space = spaces[asked.space]
        assert claim in space.claims
        assert {*asked.setting, asked.along} == {one.name for one in space.dimensions}


def test_a_paper_without_settings_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no_paper has no boundary\.yaml"):
        boundary.read_boundaries("no_paper")


def test_a_claim_turns_where_its_map_says() -> None:
    """On another model and GPU than those of the map, both simulated."""
    (claim, asked), *_ = boundary.read_boundaries("ssjf").items()
    asked = asked.model_copy(update={"measured": (), "seeds": 3, "at": (0.4, 2.2)})
    grounds = boundary.grounds_of("ssjf", asked)
    below, above = boundary.sides_of("ssjf", claim, asked, grounds)
    assert (below.inside, above.inside) == (False, True)
    assert below.found[MEASURED] == below.found[SIMULATED]
    assert below.is_as_told
    assert above.is_as_told
    assert not OnBothEngines(0.4, inside=True, found=below.found).is_as_told
    assert above.found[SIMULATED].outcome is Outcome.COMES_OUT
    assert boundary.row_of(above)["as told"] is True
