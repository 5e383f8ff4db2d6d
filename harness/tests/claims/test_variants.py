"""A check says what is otherwise for the program of a paper's authors."""

from typing import Any

import pandas as pd

from harness.claims.judge import verdict_of
from harness.tests.support.claims import (
    LIMIT,
    REQUESTS,
    SETTINGS,
    check,
    claim,
    even,
    falling,
    runs,
)


def test_what_the_program_does_otherwise_replaces_words_of_a_check() -> None:
    """The paper's runs are of `new`; of the program's the same is said of `older`."""
    rows = runs(even(falling))
    one = claim(
        check={
            "rule": "range",
            "scenario": "toy",
            "columns": ["end_to_end_s"],
            "quantity": "speedup",
            "system": {"config.system.name": "new"},
            "baselines": [{"config.system.name": "old"}],
            "settings": SETTINGS,
            "step": 0.1,
            "code": {"scenario": "other", "system": {"config.system.name": "old"}},
        },
    )
    asked = []

    def summaries(scenario: str) -> Any:
        asked.append(scenario)
        return rows.assign(**{"config.variant": "code" if scenario == "other" else "paper"})

    assert verdict_of(one, summaries)["verdict"] == "reproduced"
    assert verdict_of(one, summaries, "code")["verdict"] == "not reproduced"
    assert asked == ["toy", "other"]


def both_variants() -> pd.DataFrame:
    """Speedups of 2 by the paper's method and of 3 by its program, which ran to 200 only."""
    paper, code = runs(even(lambda *_: 2.0)), runs(even(lambda *_: 3.0), counts=(100, 200))
    rows: pd.DataFrame = pd.concat([paper, code], ignore_index=True)
    rows["config.variant"] = ["paper"] * len(paper) + ["code"] * len(code)
    return rows


def test_a_check_is_otherwise_for_the_program() -> None:
    """Scenario, settings and figure are replaced, and the rest stands."""
    otherwise = {
        "scenario": "toy_code",
        "settings": {REQUESTS: {"each": [100, 200]}, LIMIT: {"each": [8]}},
        "paper": 3.0,
    }
    usual = {name: getattr(check(), name) for name in ("rule", "quantity", "system", "baselines")}
    usual |= {"columns": ["end_to_end_s"], "scenario": "toy", "settings": SETTINGS}
    whole = claim(paper=2.0, check=usual | {"step": 0.1, "code": otherwise})
    asked: list[str] = []

    def summaries(scenario: str) -> pd.DataFrame:
        asked.append(scenario)
        return both_variants()

    rows = [verdict_of(whole, summaries, variant) for variant in ("paper", "code")]
    assert asked == ["toy", "toy_code"]
    assert [row["verdict"] for row in rows] == ["reproduced", "reproduced"]
    assert [row["ours"][:4] for row in rows] == ["2.00", "3.00"]
    other = claim(paper=2.0, check=usual | {"step": 0.1, "code": {"scenario": "toy_code"}})
    row = verdict_of(other, summaries, "code")
    assert row["verdict"] == "not run"
    assert row["note"].startswith("no run for name new, requests 300")
