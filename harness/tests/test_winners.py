"""Which policy wins where: equal policies count as one, the rule of a win, files of the command."""

from collections.abc import Mapping
from functools import partial
from math import ceil, floor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness import winners
from harness.__main__ import main
from harness.conditions.outcomes import Outcome, found_of
from harness.conditions.trials import OUTCOME, VALUE, Trials
from harness.conditions.winners import OfWinners, claim_id
from harness.conditions.wins import NO_POLICY, Wins, outwards, won_cells
from harness.league import KINDS, load_words
from harness.runs import published

JCT, MET = "jct_s_mean", "slo_attainment"
FIVE = ("a", "b", "c", "d", "e")
NOISE = np.array([0.9, 1.0, 1.1])
"""Of one side of a comparison: a gain of 5% is within it."""


def league_of(regrets: dict[str, float]) -> pd.DataFrame:
    """A league of one load, in which a policy is so much worse than 1 in every figure."""
    place = {"load": "sharegpt", "share": 0.5, "kv": "ample", "rank": 1.0}
    return pd.DataFrame(
        {**place, "policy": policy, "figure": figure, "value": 1 + regret, "regret": regret}
        for policy, regret in regrets.items()
        for figure in KINDS["league_requests"]["judged"]
    )


def test_policies_with_about_equal_figures_count_as_one() -> None:
    regrets = {"w": 0.6, "dlpm": 0.1, "vllm": 0.1, "vtc": 0.2, "x": 0.3, "y": 0.4, "z": 0.3}
    found = league_of(regrets)
    found.loc[(found["policy"] == "z") & (found["figure"] == JCT), "value"] = 1.5
    assert winners.strongest(found) == {"vllm": ["dlpm"], "vtc": [], "x": [], "z": [], "y": []}


def test_a_policy_of_an_older_league_is_served_by_the_file_of_today() -> None:
    assert winners.served_as("fastserve") == "fastserve_auto"
    assert winners.served_as("vtc") == "vtc"
    with pytest.raises(ValueError, match=r"league.csv has gone, which is none of vllm, .*league"):
        winners.served_as("gone")


def outcomes(values: Mapping[str, object], figure: str = JCT) -> dict[str, Outcome]:
    """By policy, whether it wins in three seeds with these values; all others have 1."""
    cells = pd.DataFrame(
        {"policy": policy, "seed": seed, figure: float(value)}
        for policy in FIVE
        for seed, value in enumerate(np.broadcast_to(values.get(policy, 1.0), 3))  # type: ignore[call-overload]
    )
    claims = OfWinners(FIVE, (figure,), {}).claims
    return {it: found_of(claims[claim_id(it, figure)], cells).outcome for it in FIVE}


@pytest.mark.parametrize(
    ("case", "values", "wins"),
    [
        ("beats all", {"a": 0.97}, True),
        ("beats all by less than 2%", {"a": 0.985}, False),
        ("beats three of four", {"a": 0.8, "e": 0.81}, False),
        ("is within noise of all", {"a": 0.95 * NOISE}, False),
        ("is within noise of one that is further behind", {"a": 0.9, "e": 1.02 * NOISE}, False),
        ("is the worst", {"a": 1.2}, False),
    ],
)
def test_a_winner_is_better_than_each_other_policy(
    case: str, values: dict[str, object], wins: bool
) -> None:
    found = outcomes(values)
    assert (found.pop("a") is Outcome.COMES_OUT) is wins, case
    assert Outcome.COMES_OUT not in found.values()


def test_of_a_figure_of_which_more_is_better_the_winner_has_more() -> None:
    assert outcomes({"a": 1.03}, MET)["a"] is Outcome.COMES_OUT
    assert outcomes({"a": 0.9}, MET)["a"] is Outcome.REVERSED


def tried(*cells: dict[str, tuple[Outcome, float]]) -> pd.DataFrame:
    """Cells as they are tried, with outcome and value of each policy."""
    return pd.DataFrame(
        {"load": 1.0, "kv_share": 1.0, "spread": 1.0}
        | {f"{claim_id(it, JCT)} {OUTCOME}": word.value for it, (word, _) in cell.items()}
        | {f"{claim_id(it, JCT)} {VALUE}": value for it, (_, value) in cell.items()}
        for cell in cells
    )


def test_cells_without_a_winner_say_which_policies_lead_together() -> None:
    behind, ahead, even = Outcome.REVERSED, Outcome.COMES_OUT, Outcome.NO_EFFECT
    three = ("a", "b", "vllm")
    question = OfWinners(three, (JCT,), winners.question_of(three).content)
    cells = tried(
        {"a": (ahead, 0.1), "b": (behind, -0.11), "vllm": (behind, -0.3)},
        {"a": (even, 0.0), "b": (even, 0.0), "vllm": (behind, -0.3)},
        {"a": (even, 0.0), "b": (even, 0.0), "vllm": (even, -0.3)},
        {"a": (even, 0.05), "b": (even, -0.05), "vllm": (behind, -0.3)},
    )
    won = won_cells(question, cells)
    assert won[f"{JCT} winner"].to_list() == ["a", NO_POLICY, NO_POLICY, NO_POLICY]
    assert won[f"{JCT} tied"].to_list() == ["", "a+b", "", ""]
    assert won[f"{JCT} gain"].to_list()[0] == 0.1
    assert Wins(question, won, JCT).sentence == (
        "mean JCT: a wins in 25% of 4 settings, the others in none; no policy in 75%; "
        "a and b lead together in 25% of all."
    )
    assert Wins(question, won[1:], JCT).sentence == (
        "mean JCT: no policy wins in 100% of 3 settings; a and b lead together in 33% of all."
    )


def test_limits_around_settings_leave_none_of_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winners, "LOG2_CELLS", 8)
    assert (outwards(0.1314, ceil), outwards(0.14, ceil), outwards(1.38, floor)) == (
        0.14,
        0.14,
        1.3,
    )
    question = OfWinners(("a", "vllm"), (JCT,), winners.question_of(("a", "vllm")).content)
    places = pd.DataFrame(question.space.sample())
    name = np.where((places["load"] > 1.0) & (places["kv_share"] < 0.1), "a", NO_POLICY)
    places[f"{JCT} winner"], places[f"{JCT} tied"] = name, ""
    wins = Wins(question, places, JCT)
    around = wins.around("a")
    assert set(around.limits) == {"load", "kv_share"}
    assert around.holds({it: places[it].to_numpy(float) for it in around.limits})[name == "a"].all()


def test_the_command_writes_cells_sentences_picture_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in {"LOG2_CELLS": 3, "COUNT": 2, "SEEDS": 2, "MOST_SEEDS": 2}.items():
        monkeypatch.setattr(winners, name, number)
    few = [*load_words("sharegpt"), "workload.requests=30"]
    monkeypatch.setattr(winners, "load_words", lambda _: few)
    monkeypatch.setattr(winners, "Trials", partial(Trials, workers=1))
    monkeypatch.setattr(published, "place", lambda kind, publish: tmp_path / kind)
    marks = ("<!-- generated: winners -->\n", "<!-- end: winners -->\n")
    for folder, text in {
        "league/league.csv": league_of({"vllm": 0.1, "ssjf": 0.0}).to_csv(index=False),
        "pages/league.md": "".join(("# League\n\n", *marks, "\nMore.\n")),
    }.items():
        (tmp_path / folder).parent.mkdir()
        (tmp_path / folder).write_text(text)
    assert main(["league", "--winners"]) == 0
    won = pd.read_csv(tmp_path / "league" / "winners.csv")
    assert len(won) == 8
    assert {f"{JCT} winner", "ttft_s_p99 winner"} <= {*won}
    page = (tmp_path / "pages" / "league.md").read_text()
    assert page.startswith(f"# League\n\n{marks[0]}Which policy wins where: ")
    assert page.endswith(f" of all.\n{marks[1]}\nMore.\n")
    assert "of 8 settings" in page
    for name in ("league/winners.json", "figures/league_winners.png", "figures/league_winners.pdf"):
        assert (tmp_path / name).is_file()


def test_winners_are_of_the_whole_league(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["league", "--winners", "sharegpt"]) == 2
    assert "name no load" in capsys.readouterr().err
