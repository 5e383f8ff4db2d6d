"""Demand of applications from recorded runs, by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from harness.interface.tables import Floats
from harness.planning.application_history import ApplicationHistory, UnitRun
from systems.hermes.pdgraph import GraphSettings, PdGraph, Upstream, upstream_of

NOTHING = (np.nan, np.nan, np.nan)


def graph(runs: Sequence[Sequence[UnitRun]], *, refines: bool = True) -> PdGraph:
    """A second for a token of an answer, and a hundredth for one of a prompt."""
    return PdGraph(runs, GraphSettings(0.01, 1.0, refines, buckets=10, min_correlation=0.5))


def llm(unit: str, prompt_tokens: int, *output_tokens: int) -> UnitRun:
    return UnitRun(unit, (prompt_tokens,) * len(output_tokens), output_tokens)


def left(known: PdGraph, name: str, prompts: tuple[int, ...], upstream: Upstream) -> Floats:
    """Samples of a unit that starts and of what comes after it."""
    own_s, rest_s = known.left_s(name, prompts, upstream)
    return own_s + rest_s


def test_a_static_graph_by_hand() -> None:
    """Two calls of 100 + 3 tokens, 5 s in a container, and one call of 200 + 7."""
    run = [llm("plan", 100, 3, 3), UnitRun("run", external_s=5.0), llm("write", 200, 7)]
    known = graph([run] * 3)
    np.testing.assert_allclose(known.whole_s, 8.0 + 5.0 + 9.0)
    np.testing.assert_allclose(known.recorded_s, 22.0)
    np.testing.assert_allclose(left(known, "run", (), NOTHING), 14.0)
    # The prompt that has come counts, not those recorded.
    np.testing.assert_allclose(left(known, "write", (300,), NOTHING), 10.0)
    np.testing.assert_allclose(left(known, "plan", (100, 100, 100), NOTHING), 12.0 + 14.0)
    np.testing.assert_allclose(left(known, "other", (1,), NOTHING), 22.0)


def test_branches_are_taken_as_often_as_recorded() -> None:
    """One run in four needs 100 s more, and walks take a loop again and again."""
    short, long = [llm("plan", 100, 9)], [llm("plan", 100, 9), llm("write", 100, 99)]
    whole_s = graph([short, short, short, long]).whole_s
    assert set(whole_s.round(6)) == {10.0, 110.0}
    assert (whole_s > 50).mean() == pytest.approx(0.25, abs=0.05)
    loop = graph([[llm("try", 100, 9)] * 2]).whole_s
    assert loop.mean() == pytest.approx(20.0, rel=0.1)
    assert loop.max() > 40.0


def of_length(question: int) -> list[UnitRun]:
    """A plan as long as its question, then an answer of ten times the plan."""
    return [llm("plan", question, question), llm("write", 3 * question, 10 * question)]


def test_what_is_known_narrows_what_is_left() -> None:
    runs = [of_length(question) for question in range(1, 101)]
    known, prior = graph(runs), graph(runs, refines=False)
    write = known.units["write"]
    assert write.masks == {
        "prompt by upstream prompt": True,
        "prompt by upstream output": True,
        "output by upstream output": True,
        "output by prompt": True,
        "calls by upstream calls": False,
    }
    assert not any(known.units["plan"].masks[m] for m in write.masks if "upstream" in m)
    # Questions of 51..60 tokens are in one bucket: of 510..600 tokens are the answers.
    left_s = left(known, "write", (165,), upstream_of((55,), (55,))) - 1.65
    assert left_s.min() >= 500
    assert left_s.max() <= 610
    # From the plan on, walks draw answers from the bucket of the plan.
    from_plan_s = left(known, "plan", (55,), NOTHING)
    assert from_plan_s.min() >= 500
    assert from_plan_s.max() <= 680
    assert left(prior, "plan", (55,), NOTHING).max() > 900
    assert known.whole_s.std() == pytest.approx(known.recorded_s.std(), rel=0.1)


def test_few_samples_are_not_narrowed() -> None:
    """Four runs are fewer than a condition must leave."""
    known = graph([of_length(question) for question in (1, 2, 50, 99)])
    assert left(known, "write", (6,), upstream_of((2,), (2,))).max() > 900


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: UnitRun("plan"), "unit plan has neither calls nor seconds"),
        (lambda: UnitRun("plan", (3,), ()), "unit plan has 1 prompts and 0 answers"),
        (lambda: UnitRun("plan", (3,), (0,)), "unit plan has a call of 0 tokens"),
        (lambda: UnitRun("run", external_s=-1.0), "unit run took -1.0 s, at least 0 is allowed"),
        (lambda: ApplicationHistory({"a": []}), "applications of kind a have no recorded run"),
        (lambda: ApplicationHistory({"a": [[]]}), "run 0 of applications of kind a has no units"),
    ],
)
def test_recorded_runs_that_cannot_be_are_refused(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=sentence):
        make()
