"""Every verdict from made-up runs, what keeps a claim from one, and the registries themselves."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from harness.claims import judge as claims
from harness.claims.judge import Check, judge
from harness.claims.verdicts import Verdict
from harness.runs import record

REGISTRIES = record.ROOT / "results" / "claims"
REQUESTS, LIMIT = "config.workload.requests", "config.workload.max_output_tokens"
Seconds = Callable[[str, int, int, int], float]
NAMES = ("new", "old", "older")
SETTINGS = {REQUESTS: {"between": [100, 300]}, LIMIT: {"each": [8, 16]}}


def runs(seconds: Seconds, *, seeds: int = 3, counts: tuple[int, ...] = (100, 200, 300)) -> Any:
    """One run per system, request count, limit and seed, taking `seconds` of them."""
    rows = [
        {
            "config.system.name": name,
            REQUESTS: count,
            LIMIT: limit,
            "config.seed": seed,
            "end_to_end_s": seconds(name, count, limit, seed),
            "load_s": 1.0,
            "least_s": 10.6,
            "most_s": 47.4,
            "unfinished": 0,
            "code": "c1",
            "started": "2026-01-01",
            "costs.profile": "gpu",
            "costs.fit_error": 0.05,
        }
        for name in NAMES
        for count in counts
        for limit in (8, 16)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def even(speedup: Callable[[int, int], float]) -> Seconds:
    """Seconds that give each setting the speedup of `old` over `new`, whatever the seed."""
    return lambda name, count, limit, seed: (
        (10.0 + seed) * (speedup(count, limit) if name == "old" else 1.0)
    )


def check(**changes: Any) -> Check:
    """A range check of `old` over `new`, with changes."""
    usual: dict[str, Any] = {
        "rule": "range",
        "scenario": "toy",
        "columns": ["end_to_end_s"],
        "quantity": "speedup",
        "system": {"config.system.name": "new"},
        "baselines": [{"config.system.name": "old"}],
        "settings": SETTINGS,
        "paper": [1.1, 2.4],
        "step": 0.1,
        "tolerance": 0.15,
    }
    return Check(**(usual | changes))


def falling(count: int, limit: int) -> float:
    """1.1 to 2.4, falling with the count and higher at the lower limit."""
    at_limit = {100: 2.3, 200: 1.6, 300: 1.1}[count]
    return at_limit + (0.1 if (count, limit) == (100, 8) else 0.0)


def test_range_reproduced() -> None:
    outcome = judge(check(), runs(even(falling)))
    assert outcome.verdict == Verdict.REPRODUCED
    assert outcome.ours == "1.10 [1.10, 1.10] to 2.40 [2.40, 2.40]"
    assert (outcome.seeds, outcome.basis) == (3, "gpu (fit error 5.0%)")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({300: 1.06}, Verdict.REPRODUCED),  # printed 1.1
        ({300: 1.04}, Verdict.DIRECTION),  # printed 1.0: outside
        ({100: 2.0}, Verdict.DIRECTION),  # inside, but its largest is 17% short of 2.4
        ({100: 2.1}, Verdict.REPRODUCED),  # inside, 12.5% short
        ({100: 2.5}, Verdict.DIRECTION),  # outside, though within 15%
    ],
)
def test_range_is_strict_about_both_ends(changed: dict[int, float], verdict: Verdict) -> None:
    speedups = {100: 2.4, 200: 1.6, 300: 1.1} | changed
    assert judge(check(), runs(even(lambda count, _: speedups[count]))).verdict == verdict


def test_an_uncertain_setting_may_touch_the_range() -> None:
    """2.6 on average at 100 requests, but 2.4 lies in the interval over seeds."""
    spread = (2.3, 2.6, 2.9)

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        if name != "old":
            return 10.0
        return 10 * (spread[seed] if count == 100 else {200: 1.6, 300: 1.1}[count])

    assert judge(check(), runs(seconds)).verdict == Verdict.REPRODUCED


def test_direction_needs_nine_settings_of_ten() -> None:
    slower = runs(even(lambda count, limit: 0.98 if (count, limit) == (300, 16) else 3.0))
    assert judge(check(), slower).verdict == Verdict.NOT_REPRODUCED
    hardly = runs(even(lambda count, limit: 0.996 if (count, limit) == (300, 16) else 3.0))
    assert judge(check(), hardly).verdict == Verdict.DIRECTION


def test_direction_needs_the_whole_interval_of_the_mean() -> None:
    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return 10.0 * ((0.6, 1.0, 1.5)[seed] if name == "old" else 1.0)

    outcome = judge(check(), runs(seconds))
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert outcome.note.startswith("mean over settings 1.03 [0.60, 1.50]")


def test_gain_and_reduction_have_their_own_zero() -> None:
    half = runs(even(lambda *_: 0.5))  # old takes half as long: new / old = 2
    assert judge(check(quantity="gain", paper=[2.0, 2.0]), half).verdict == Verdict.REPRODUCED
    saved = runs(even(lambda *_: 2.0))  # (old - new) / old = 0.5
    reduction = check(quantity="reduction", paper=0.5)
    assert judge(reduction, saved).verdict == Verdict.REPRODUCED
    assert judge(check(quantity="reduction", paper=0.9), saved).verdict == Verdict.DIRECTION
    assert judge(reduction, runs(even(lambda *_: 0.9))).verdict == Verdict.NOT_REPRODUCED


def test_minus_takes_a_column_off_both() -> None:
    """(21 - 1) / (11 - 1) = 2, where 21 / 11 = 1.9."""

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return 21.0 if name == "old" else 11.0

    assert judge(check(minus="load_s", paper=2.0), runs(seconds)).ours.startswith("2.00")
    assert judge(check(paper=2.0), runs(seconds)).ours.startswith("1.91")


def test_within_takes_the_printed_digits() -> None:
    within = check(
        rule="within", quantity="value", baselines=(), columns=["least_s", "most_s"], step=1
    )
    rows = runs(even(falling))
    for paper, verdict in (
        ([11, 47], Verdict.REPRODUCED),
        ([10, 47], Verdict.REPRODUCED),
        ([12, 47], Verdict.NOT_REPRODUCED),
        ([11, 46], Verdict.NOT_REPRODUCED),
    ):
        outcome = judge(replace(within, paper=paper), rows)
        assert outcome.verdict == verdict, paper
    assert outcome.ours.startswith("10.60 [10.60, 10.60] to 47.40")


BOUND: dict[str, Any] = {"rule": "bound", "take": "largest", "side": "at_most", "paper": 2.5}


@pytest.mark.parametrize(
    ("largest", "where", "verdict"),
    [
        (2.5, (100, 8), Verdict.REPRODUCED),
        (2.54, (100, 8), Verdict.REPRODUCED),  # printed 2.5
        (2.56, (100, 8), Verdict.NOT_REPRODUCED),
        (2.5, (300, 8), Verdict.DIRECTION),
        (2.5, (100, 16), Verdict.DIRECTION),
    ],
)
def test_bound(largest: float, where: tuple[int, int], verdict: Verdict) -> None:
    rows = runs(even(lambda count, limit: largest if (count, limit) == where else 1.2))
    outcome = judge(check(**BOUND, at={REQUESTS: 100, LIMIT: 8}), rows)
    assert outcome.verdict == verdict
    assert outcome.note == (
        f"largest at requests {where[0]}, max_output_tokens {where[1]} over old"
    )


def test_bound_looks_at_every_baseline_and_either_side() -> None:
    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return {"new": 10.0, "old": 20.0, "older": 30.0}[name]

    baselines = [{"config.system.name": name} for name in ("old", "older")]
    outcome = judge(check(**BOUND, baselines=baselines), runs(seconds))
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert "over older" in outcome.note
    least = BOUND | {"take": "smallest", "side": "at_least"}
    assert judge(check(**least, baselines=baselines), runs(seconds)).ours.startswith("2.00")
    kept = check(**(least | {"paper": 2.0}), baselines=baselines)
    assert judge(kept, runs(seconds)).verdict == Verdict.REPRODUCED
    broken = check(**(least | {"paper": 2.1}), baselines=baselines)
    assert judge(broken, runs(seconds)).verdict == Verdict.NOT_REPRODUCED


TREND: dict[str, Any] = {"rule": "trend", "against": REQUESTS, "expect": "falling", "paper": None}


def test_trend() -> None:
    rows = runs(even(falling))
    outcome = judge(check(**TREND), rows)
    assert outcome.verdict == Verdict.REPRODUCED
    assert outcome.ours.startswith("-1.00 [-1.00, -1.00]")
    rising = check(**(TREND | {"expect": "rising"}))
    assert judge(rising, rows).verdict == Verdict.NOT_REPRODUCED
    flat = runs(even(lambda *_: 1.5))
    assert judge(check(**TREND), flat).verdict == Verdict.NOT_REPRODUCED


def test_trend_of_one_curve_of_four_that_is_not_sure() -> None:
    """Two of three seeds fall, one rises: the mean falls, its interval reaches above 0."""

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        if name == "new":
            return 10.0
        if (name, limit) == ("older", 16) and seed == 2:
            return 10.0 + count / 100
        return 20.0 - count / 50

    baselines = [{"config.system.name": name} for name in ("old", "older")]
    outcome = judge(check(**TREND, baselines=baselines), runs(seconds))
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.note == (
        "rank correlation; not falling for certain: older, max_output_tokens 16"
    )


def test_one_seed_cannot_reproduce() -> None:
    outcome = judge(check(), runs(even(falling), seeds=1))
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.ours == "1.10 (1 seed) to 2.40 (1 seed)"
    assert outcome.note == "one seed cannot reproduce"


def test_unfinished_requests_cannot_reproduce() -> None:
    rows = runs(even(falling))
    rows.loc[rows["config.system.name"] == "older", "unfinished"] = 5  # takes no part
    assert judge(check(), rows).verdict == Verdict.REPRODUCED
    rows.loc[0, "unfinished"] = 7
    outcome = judge(check(), rows)
    assert outcome.verdict == Verdict.DIRECTION
    assert outcome.note == "7 requests unfinished"


def test_a_missing_cell_is_not_run() -> None:
    rows = runs(even(falling))
    name = rows["config.system.name"] == "old"
    gone = rows[name & (rows[REQUESTS] == 200) & (rows[LIMIT] == 16) & (rows["config.seed"] == 1)]
    outcome = judge(check(), rows.drop(gone.index))
    assert (outcome.verdict, outcome.ours) == (Verdict.NOT_RUN, "")
    assert outcome.note == "no run for name old, requests 200, max_output_tokens 16, seed 1"


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (pd.DataFrame(), "no runs of toy"),
        (runs(even(falling), counts=(100, 200)), "no run for name new, requests 300"),
        (runs(even(falling)).drop(columns="end_to_end_s"), "have no end_to_end_s"),
        (runs(even(falling)).drop(columns=LIMIT), f"have no {LIMIT}"),
        (runs(even(falling)).assign(end_to_end_s=None), "no figure for name new"),
        (runs(even(falling)).assign(**{LIMIT: 99}), "no runs of toy at the settings"),
    ],
)
def test_what_is_missing_is_said(rows: pd.DataFrame, note: str) -> None:
    outcome = judge(check(), rows)
    assert outcome.verdict == Verdict.NOT_RUN
    assert note in outcome.note


def test_runs_beyond_the_ends_do_not_count() -> None:
    rows = runs(
        even(lambda count, limit: falling(count, limit) if count in (100, 200, 300) else 9),
        counts=(50, 100, 200, 300, 400),
    )
    assert judge(check(), rows).verdict == Verdict.REPRODUCED


def test_several_runs_of_one_cell_are_not_guessed_between() -> None:
    rows = pd.concat([runs(even(falling)), runs(even(falling))], ignore_index=True)
    rows["config.policy.slots"] = [1] * (len(rows) // 2) + [2] * (len(rows) // 2)
    outcome = judge(check(), rows)
    assert outcome.verdict == Verdict.NOT_RUN
    assert outcome.note.endswith("config.policy.slots differ")
    chosen = check(where={"config.policy.slots": 1})
    assert judge(chosen, rows).verdict == Verdict.REPRODUCED
    absent = check(where={"config.engine": "x"})
    assert judge(absent, rows).note == "no runs with engine x"


def test_only_runs_of_one_variant_count() -> None:
    """The paper's unless another is asked for; here only the program's are as claimed."""
    rows = pd.concat([runs(even(lambda *_: 0.5)), runs(even(falling))], ignore_index=True)
    rows["config.variant"] = ["paper"] * (len(rows) // 2) + ["code"] * (len(rows) // 2)
    assert judge(check(), rows).verdict == Verdict.NOT_REPRODUCED
    assert judge(check(), rows, "code").verdict == Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"paper": 1.6}, Verdict.REPRODUCED),  # the mean of 2.3, 1.6 and 1.1 is 1.7
        ({"paper": 1.4, "tolerance": 0.15}, Verdict.DIRECTION),  # 1.45 x 1.15 is 1.67
        ({"paper": 1.4, "tolerance": 0.3}, Verdict.REPRODUCED),
    ],
)
def test_mean_is_held_against_one_figure(changes: dict[str, Any], verdict: Verdict) -> None:
    outcome = judge(check(**({"rule": "mean"} | changes)), runs(even(falling)))
    assert outcome.verdict == verdict
    assert outcome.note == "over settings 1.10 [1.10, 1.10] to 2.40 [2.40, 2.40]"


def test_a_mean_that_is_no_better_is_not_reproduced() -> None:
    outcome = judge(check(rule="mean", paper=1.6), runs(even(lambda *_: 0.9)))
    assert outcome.verdict == Verdict.NOT_REPRODUCED


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
            "tolerance": 0.15,
            "code": {"scenario": "other", "system": {"config.system.name": "old"}},
        },
        where="here",
        metric="time",
    )
    asked = []

    def summaries(scenario: str) -> Any:
        asked.append(scenario)
        return rows.assign(**{"config.variant": "code" if scenario == "other" else "paper"})

    assert claims.verdict_of(one, summaries)["verdict"] == "reproduced"
    assert claims.verdict_of(one, summaries, "code")["verdict"] == "not reproduced"
    assert asked == ["toy", "other"]
    with pytest.raises(ValueError, match="a check has no colums"):
        claims.read_checks(claim(check=one["check"] | {"code": {"colums": ["s"]}}))


def test_figures_of_several_runs_are_added() -> None:
    """New alone takes 10 s and more; old and older, one after the other, three times that."""
    times = {"new": 1.0, "old": 1.0, "older": 2.0}
    rows = runs(lambda name, count, limit, seed: (10.0 + seed) * times[name])
    both = check(baselines=[{"config.system.name": {"sum": ["old", "older"]}}], paper=[3.0, 3.0])
    assert judge(both, rows).verdict == Verdict.REPRODUCED
    assert judge(replace(both, paper=[2.0, 2.0]), rows).verdict != Verdict.REPRODUCED


def seed_in(folder: Path) -> float:
    """A figure that a check derives from a run's folder."""
    return float(folder.name)


def test_a_figure_is_derived_from_run_folders() -> None:
    rows = runs(even(falling))
    rows["folder"] = ["somewhere/7"] * len(rows)
    derived = check(
        rule="within",
        quantity="value",
        columns=["figure"],
        derive={"figure": f"{__name__}:seed_in"},
        baselines=[],
        paper=[7, 7],
    )
    assert judge(derived, rows).verdict == Verdict.REPRODUCED
    assert judge(replace(derived, paper=[6, 6]), rows).verdict == Verdict.NOT_REPRODUCED


def test_settings_may_be_listed() -> None:
    """Not every combination was run: 100 at 8 and 300 at 16 only."""
    rows = runs(even(falling))
    pairs = list(zip(rows[REQUESTS], rows[LIMIT], strict=True))
    rows = rows[[pair in [(100, 8), (300, 16)] for pair in pairs]]
    listed = [{REQUESTS: 100, LIMIT: 8}, {REQUESTS: 300, LIMIT: 16}]
    assert judge(check(settings=listed), rows).verdict == Verdict.REPRODUCED
    assert judge(check(), rows).verdict == Verdict.NOT_RUN


def test_an_older_programs_runs_do_not_count() -> None:
    old = runs(even(lambda *_: 9.0)).assign(code="c0", started="2025-01-01")
    rows = pd.concat([old, runs(even(falling))], ignore_index=True)
    assert judge(check(), rows).verdict == Verdict.REPRODUCED


def claim(**parts: Any) -> dict[str, Any]:
    """A claim with a check of every kind."""
    usual: dict[str, Any] = {
        "id": "p.fig.x",
        "kind": "speedup",
        "paper": [1.1, 2.4],
        "check": {"rule": "range", "scenario": "toy", "columns": ["s"]},
    }
    return usual | parts


def test_a_wrong_check_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p\.fig\.x: a check has no colums"):
        claims.read_checks(claim(check={"rule": "range", "colums": ["s"]}))
    wrong = claim(check={"rule": "rnge", "scenario": "toy", "columns": ["s"]})
    with pytest.raises(
        ValueError, match="rule is one of range, mean, within, bound, trend, not rnge"
    ):
        claims.read_checks(wrong)
    with pytest.raises(ValueError, match="there are no claims at"):
        claims.read_claims(Path("nowhere.yaml"))


def test_mean_is_a_rule_of_checks() -> None:
    """Speedups of 2.4 or 2.3, 1.6 and 1.1, equally often: 1.68 on average."""
    mean = check(rule="mean", paper=1.7, tolerance=0.0)
    outcome = judge(mean, runs(even(falling)))
    assert (outcome.verdict, outcome.ours) == (Verdict.REPRODUCED, "1.68 [1.68, 1.68]")
    assert judge(replace(mean, paper=1.9), runs(even(falling))).verdict == Verdict.DIRECTION
    assert judge(replace(mean, paper=1.9, tolerance=0.1), runs(even(falling))).verdict == (
        Verdict.REPRODUCED
    )


def both_fidelities() -> pd.DataFrame:
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
        return both_fidelities()

    rows = [claims.verdict_of(whole, summaries, variant) for variant in ("paper", "code")]
    assert asked == ["toy", "toy_code"]
    assert [row["verdict"] for row in rows] == ["reproduced", "reproduced"]
    assert [row["ours"][:4] for row in rows] == ["2.00", "3.00"]
    whole["check"]["code"] = {"scenario": "toy_code"}
    row = claims.verdict_of(whole, summaries, "code")
    assert row["verdict"] == "not run"
    assert row["note"].startswith("no run for name new, requests 300")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ({"scenari": "toy_code"}, "p.fig.x: a check has no scenari"),
        ({"expect": "upward"}, "p.fig.x: expect is one of , falling, rising, not upward"),
    ],
)
def test_a_wrong_word_for_the_program_is_refused(code: dict[str, str], said: str) -> None:
    usual = {"rule": "range", "scenario": "toy", "columns": ["s"], "code": code}
    with pytest.raises(ValueError, match=f"^{said}$"):
        claims.read_checks(claim(check=usual))


def test_a_check_takes_the_claims_figure_unless_it_has_its_own() -> None:
    one = {"rule": "range", "scenario": "toy", "columns": ["s"]}
    first, second = claims.read_checks(claim(check=[one, one | {"paper": 3}]))
    assert (first.band.low, first.band.high) == (1.1, 2.4)
    assert (second.band.low, second.band.high) == (3, 3)
    (shape,) = claims.read_checks(claim(kind="shape", paper="falls", check=one))
    with pytest.raises(ValueError, match="needs a figure of the paper"):
        _ = shape.band


def test_a_claim_of_two_parts_is_as_good_as_the_worse() -> None:
    parts = {key: getattr(check(), key) for key in ("rule", "columns", "quantity", "system")}
    parts |= {key: getattr(check(), key) for key in ("baselines", "settings", "step", "tolerance")}
    whole = parts | {"scenario": "toy"}
    both = claim(check=[whole, whole | {"paper": [1.1, 9.0]}], where="", metric="", note="mind")
    row = claims.verdict_of(both, lambda scenario: runs(even(falling)))
    assert row["verdict"] == "direction only"
    assert row["ours"].count("to 2.40") == 2
    assert row["note"].endswith("; mind")


def test_from_run_folders_to_the_verdict_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = claim(where="Fig. 1", metric="seconds")
    facts["check"] = {
        "rule": "range",
        "scenario": "toy",
        "columns": ["end_to_end_s"],
        "quantity": "speedup",
        "system": {"config.system.name": "new"},
        "baselines": [{"config.system.name": "old"}],
        "paper": 2.0,
        "step": 0.1,
        "tolerance": 0.15,
    }
    unchecked = {key: value for key, value in facts.items() if key != "check"} | {"id": "p.y"}
    (tmp_path / "claims").mkdir()
    listed = yaml.safe_dump({"claims": [facts, unchecked]})
    (tmp_path / "claims" / "p.yaml").write_text(listed)
    arguments = ["p", "--results", str(tmp_path), "--strict"]
    assert claims.main(arguments) == 1
    for name, seconds in (("new", 10.0), ("old", 20.0)):
        for seed in range(2):
            record.write_run(
                tmp_path / "toy" / f"{name}{seed}",
                config={"system": {"name": name}, "seed": seed},
                provenance={"code": "c", "started": "t", "costs": {"profile": "gpu"}},
                requests=pd.DataFrame({"id": [0]}),
                gpu=pd.DataFrame({"gpu": [0]}),
                iterations=None,
                summary={"end_to_end_s": seconds + seed},
            )
    assert claims.main(arguments) == 0
    first, second = json.loads((tmp_path / "claims" / "p_verdicts.json").read_text())
    assert first["id"] == "p.fig.x"
    assert first["verdict"] == "reproduced"
    assert first["ours"] == "1.95 [1.91, 2.00]"
    assert (first["seeds"], first["basis"]) == (2, "gpu (fit error not stated)")
    assert (second["verdict"], second["note"]) == ("not run", "no check")
    printed = capsys.readouterr().out
    assert "p.fig.x" in printed
    assert "1.95 [1.91, 2.00]" in printed
    assert claims.main(["q", "--results", str(tmp_path)]) == 2


def test_the_registries_are_complete() -> None:
    listed = [one["id"] for path in REGISTRIES.glob("*.yaml") for one in claims.read_claims(path)]
    assert len(listed) == len(set(listed))
    expected = (Path(__file__).parent / "claim_ids.txt").read_text().split()
    assert sorted(expected) == sorted(listed)


@pytest.mark.parametrize("path", sorted(REGISTRIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_registry_states_facts_and_checks_that_can_be_applied(path: Path) -> None:
    for one in claims.read_claims(path):
        assert {"id", "where", "metric", "kind", "paper"} <= set(one), one["id"]
        assert one["id"].startswith(f"{path.stem}.")
        given = claims.read_checks(one)
        for found in (*given, *(replace(each, **each.code) for each in given)):
            rows = pd.DataFrame({"code": ["c"], "started": ["t"]})
            assert (judge(found, rows).verdict == Verdict.NOT_RUN) == (not found.table)
            assert bool(found.table) != bool(found.scenario)
            assert (found.quantity == "value") == (not found.baselines)
            if found.rule == "trend":
                assert found.against in found.settings
            else:
                assert found.band.low <= found.band.high
                assert found.step > 0
            if found.rule == "bound":
                named = found.settings
                columns = named if isinstance(named, Mapping) else named[0]
                assert set(found.at) <= set(columns)
                assert found.take
                assert found.side


def test_the_basis_names_services_that_were_not_measured() -> None:
    used = pd.DataFrame(
        {
            "costs.profile": ["gpu", "gpu"],
            "costs.fit_error": [0.05, 0.05],
            "costs.source.a": ["measured", "measured"],
            "costs.source.b": ["roofline", None],
        }
    )
    assert claims.basis(used) == "gpu (fit error 5.0%), b: roofline"
