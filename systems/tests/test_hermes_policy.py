"""Keys of applications from what they have left, by hand."""

import re

import numpy as np
import pytest

from harness.interface.entities import AppId, GroupId, RequestId
from harness.interface.events import (
    AppArrived,
    AppFinished,
    Finished,
    UnitFinished,
    UnitStarted,
)
from harness.planning.application_history import ApplicationHistory, UnitRun
from harness.planning.attained import Attained
from harness.tests.support.calls import GROUP, Call, keys, table_of
from harness.tests.support.serving import rule
from systems.hermes.pdgraph import GraphSettings
from systems.hermes.policy import Hermes

X, Y, Z = AppId(0), AppId(1), AppId(2)


def one_unit(*outputs: int) -> list[list[UnitRun]]:
    """A run for each answer, of one call."""
    return [[UnitRun("a", (10,), (tokens,))] for tokens in outputs]


PAST = ApplicationHistory(
    {
        "risky": one_unit(1, 9),
        "sure": one_unit(3),
        "fifty": one_unit(30, 50),
        "twenty": one_unit(10, 20),
        "two": [
            [UnitRun("a", (10,), (4,)), UnitRun("tool", external_s=5.0), UnitRun("a", (10,), (6,))]
        ],
    }
)


def hermes(
    objective: str = "gittins",
    *,
    past: ApplicationHistory | None = PAST,
    refines: bool = True,
) -> Hermes:
    """A second for a token of an answer, nothing for prompts, nine buckets."""
    return Hermes(
        rule=rule(),
        objective=objective,
        graphs=GraphSettings(0.0, 1.0, refines, buckets=9, min_correlation=0.5),
        displaces=None,
        renew_s=1.0,
        applications=past,
    )


def begin(policy: Hermes, app: AppId, kind: str, deadline_s: float | None = None) -> None:
    """An application comes and its first unit starts, with the call of the same number."""
    policy.observe(AppArrived(0.0, app, kind, deadline_s))
    policy.observe(UnitStarted(0.0, app, "a", (RequestId(app),), (10,)))


def generated(app: AppId, tokens: int) -> Call:
    return Call(app, app, generated=tokens, admitted=tokens > 0)


@pytest.mark.parametrize("refines", [True, False])
def test_gittins_ranks_follow_what_is_attained_by_hand(refines: bool) -> None:
    """1 or 9 s against 3 s: ranks 2 and 3; when it has not ended after 1 s, 8 and 3."""
    policy = hermes(refines=refines)
    begin(policy, X, "risky")
    begin(policy, Y, "sure")
    assert keys(policy, generated(X, 0), generated(Y, 0)) == pytest.approx([2, 3], rel=0.1)
    assert keys(policy, generated(X, 1), generated(Y, 0)) == [8, 3]


def test_the_mean_does_not_see_the_chance_to_end_soon() -> None:
    policy = hermes("mean")
    begin(policy, X, "risky")
    begin(policy, Y, "sure")
    assert keys(policy, generated(X, 0), generated(Y, 0)) == [5, 3]
    assert keys(policy, generated(X, 7), generated(Y, 0)) == [-2, 3]


def test_the_program_puts_what_has_overrun_first() -> None:
    policy = hermes("program")
    begin(policy, X, "risky")
    begin(policy, Y, "sure")
    assert keys(policy, generated(X, 0), generated(Y, 0)) == [2, 3]
    assert keys(policy, generated(X, 10), generated(Y, 0)) == [0, 3]


def test_least_slack_in_the_worst_case_by_hand() -> None:
    """At any time: 100 s less 50 s of which 10 are attained, against 90 s less 20 s."""
    policy = hermes("slack")
    begin(policy, X, "fifty", 100.0)
    begin(policy, Y, "twenty", 90.0)
    begin(policy, Z, "sure")
    calls = generated(X, 10), generated(Y, 0), generated(Z, 0)
    assert keys(policy, *calls) == [60, 70, 1e9 + 3]


def test_risk_counts_the_longest_call_of_each_unit_by_hand() -> None:
    """Two calls of 30 and 50 s, then one of 8 s: the path has 58 s of 60, then 8 s of 10.

    Late applications and those without risk come behind, by their rank.
    """
    runs = [[UnitRun("a", (10, 10), (30, 50)), UnitRun("b", (10,), (8,))]] * 2
    past = ApplicationHistory({"path": runs, "sure": one_unit(3)})
    policy = hermes("risk", past=past)
    policy.observe(AppArrived(0.0, X, "path", 60.0))
    policy.observe(UnitStarted(0.0, X, "a", (RequestId(0), RequestId(9)), (10, 10)))
    begin(policy, Y, "sure", 60.0)
    risky, safe = keys(policy, generated(X, 0), generated(Y, 0))
    assert risky == pytest.approx((30 + 50 + 8) / (58 / 60))
    assert safe == 1e9 + 3
    policy.observe(UnitFinished(50.0, X, "a", (10, 10), (30, 50)))
    policy.observe(UnitStarted(50.0, X, "b", (RequestId(7),), (10,)))
    assert keys(policy, generated(X, 0)) == pytest.approx([8 / (8 / 10)])
    policy.observe(AppArrived(60.0, Z, "sure", None))
    late, without = keys(policy, generated(X, 0), generated(Z, 0))
    assert (late, without) == (1e9 + 8, 1e9 + 3)


def test_by_slack_applications_past_their_deadline_come_first() -> None:
    policy = hermes("slack")
    begin(policy, X, "fifty", 45.0)
    begin(policy, Y, "fifty", 100.0)
    policy.observe(AppArrived(46.0, Z, "sure", None))
    late, other = keys(policy, generated(X, 0), generated(Y, 0))
    assert late < other


@pytest.mark.parametrize("refines", [True, False])
def test_a_unit_that_starts_leaves_what_comes_after_it(refines: bool) -> None:
    """Units of 4 s, of 5 s outside the LLM and of 6 s; the first and the last are of one name.

    A walk does not know how many turns have been, so the unit has as much left as at first. Where
    nothing is refined, that is the whole application's demand less all that has been attained.
    """
    policy = hermes("mean", refines=refines)
    begin(policy, X, "two")
    (first,) = keys(policy, generated(X, 0))
    policy.observe(Finished(4.0, generated(X, 4).facts, 4))
    policy.observe(UnitFinished(4.0, X, "a", (10,), (4,)))
    policy.observe(UnitStarted(4.0, X, "tool", (RequestId(7),), (1,)))
    policy.observe(UnitFinished(9.0, X, "tool", (), (), 5.0))
    policy.observe(UnitStarted(9.0, X, "a", (RequestId(8),), (10,)))
    left = first if refines else first - 9
    assert keys(policy, Call(8, X)) == [left]
    assert keys(policy, Call(8, X, generated=3, admitted=True)) == [left - 3]


def test_requests_of_no_application_are_ordered_by_arrival() -> None:
    policy = hermes(past=None)
    assert keys(policy, Call(0, X, arrival_s=2.0), Call(1, Y, arrival_s=1.0)) == [2.0, 1.0]


def test_service_attained_by_hand() -> None:
    """Tokens of parallel calls add up, whichever of them a group asks about, and end with them."""
    book = Attained(prompt_token_s=0.5, output_token_s=1.0)
    only_x = np.array([X])
    book.observe(AppArrived(0.0, X, "kind", None))
    book.observe(UnitStarted(0.0, X, "a", (RequestId(0), RequestId(1)), (10, 10)))
    first, second = (Call(i, X, generated=i + 1, admitted=True) for i in (0, 1))
    book.look(GROUP, table_of(first, second, Call(2, Y, generated=9)))
    assert book.attained_s(GROUP, only_x) == [6.0 + 7.0]
    book.look(GROUP, table_of(Call(1, X, generated=4, admitted=True)))
    book.look(GROUP, table_of(Call(3, X)))
    assert book.attained_s(GROUP, only_x) == [6.0 + 9.0]
    # Another group knows of it what events tell.
    assert book.attained_s(GroupId("other"), only_x) == [0.0]
    book.observe(Finished(1.0, first.facts, 5))
    assert book.attained_s(GROUP, only_x) == [10.0 + 9.0]
    assert book.attained_s(GroupId("other"), only_x) == [10.0]
    book.observe(UnitFinished(2.0, X, "tool", (), (), 8.0))
    assert book.attained_s(GROUP, only_x) == [27.0]
    assert book.apps[X].upstream is None
    book.observe(AppFinished(3.0, X))
    assert not book.apps


@pytest.mark.parametrize(
    ("prompt_token_s", "output_token_s", "buckets", "sentence"),
    [
        (0.0, 1.0, 0, "graphs.buckets is 0, it must be at least 1"),
        (0.0, -1.0, 9, "graphs.output_token_s is -1.0, it must be at least 0"),
        (0.0, 0.0, 9, "graphs.prompt_token_s and graphs.output_token_s are both 0"),
    ],
)
def test_graphs_that_cannot_be_are_refused(
    prompt_token_s: float, output_token_s: float, buckets: int, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        GraphSettings(prompt_token_s, output_token_s, True, buckets, 0.5)


def test_another_objective_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.objective is best, not one of gittins, stage"):
        hermes("best")


def test_a_kind_without_recorded_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="applications of kind other have no recorded run"):
        hermes().observe(AppArrived(0.0, X, "other", None))
