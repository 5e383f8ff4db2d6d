"""From made-up runs to findings, and from those of every open choice to a verdict."""

from typing import Any

import pandas as pd
import pytest

from harness.claims.findings import Agreement
from harness.claims.judge import judge, verdict_of
from harness.claims.reading import Claim
from harness.tests.support.claims import (
    LIMIT,
    REQUESTS,
    check,
    claim,
    even,
    falling,
    runs,
    toy_check,
)

SLOTS = "policy.slots"


def varied(*parts: tuple[str, object, pd.DataFrame]) -> pd.DataFrame:
    """Runs of a scenario and its variations: the key (none for its own cells), slots, rows."""
    frames = [
        rows.assign(**dict[str, Any]({f"config.{SLOTS}": slots, "config.varied": key}))
        for key, slots, rows in parts
    ]
    return pd.concat(frames, ignore_index=True)


def opened(*values: object, **parts: Any) -> Claim:
    """A claim whose paper does not state the slots."""
    choice = {"key": SLOTS, "values": [*values], "source": "not stated"}
    return claim(**{"check": toy_check(), "open": [choice], **parts})


def verdict(one: Claim, rows: pd.DataFrame) -> dict[str, Any]:
    return verdict_of(one, lambda scenario: rows)


def test_a_range_of_runs() -> None:
    found = judge(check(), runs(even(falling)))
    assert found.agreement == Agreement.AGREES
    assert found.ours == "1.10 [1.10, 1.10] to 2.40 [2.40, 2.40]"
    assert (found.seeds, found.basis) == (5, "gpu (fit error 5.0%)")


@pytest.mark.parametrize(
    ("rule", "agreement"),
    [
        ({"rule": "figure", "paper": 1.7}, Agreement.AGREES),
        ({"rule": "figure", "paper": 3.0}, Agreement.DIRECTION),
        ({"rule": "trend", "against": REQUESTS, "expect": "falling"}, Agreement.AGREES),
        ({"rule": "trend", "against": REQUESTS, "expect": "rising"}, Agreement.DIFFERS),
        ({"rule": "bound", "take": "largest", "side": "at_most", "paper": 2.4}, Agreement.AGREES),
        ({"rule": "bound", "take": "largest", "side": "at_most", "paper": 2.0}, Agreement.DIFFERS),
    ],
)
def test_every_rule_of_runs(rule: dict[str, Any], agreement: Agreement) -> None:
    assert judge(check(**rule), runs(even(falling))).agreement == agreement


def test_a_bound_looks_at_every_baseline() -> None:
    times = {"new": 10.0, "old": 20.0, "older": 30.0}
    rows = runs(lambda name, count, limit, seed: times[name])
    baselines = [{"config.system.name": name} for name in ("old", "older")]
    bound = {"rule": "bound", "take": "largest", "side": "at_most", "baselines": baselines}
    found = judge(check(**bound, paper=2.0), rows)
    assert found.agreement == Agreement.DIFFERS
    assert found.note == "largest at requests 100, max_output_tokens 8 over older"


def test_four_seeds_and_unfinished_requests_cannot_agree() -> None:
    few = judge(check(), runs(even(falling), seeds=4))
    assert few.agreement == Agreement.DIRECTION
    assert few.note.endswith("4 of the 5 seeds that a verdict needs")
    rows = runs(even(falling))
    rows.loc[rows["config.system.name"] == "older", "unfinished"] = 5  # takes no part
    assert judge(check(), rows).agreement == Agreement.AGREES
    rows.loc[0, "unfinished"] = 7
    assert judge(check(), rows).note.endswith("7 requests unfinished")


def test_a_ratio_of_nothing_is_no_traceback() -> None:
    found = judge(check(), runs(lambda *_: 0.0))
    assert (found.agreement, found.ours) == (Agreement.UNTOLD, "")
    assert found.note == "no speedup can be taken of figures that are not positive"


def test_a_claim_of_two_parts_is_as_good_as_the_worse() -> None:
    both = claim(check=[toy_check(), toy_check(paper=[1.1, 9.0])], note="mind")
    row = verdict(both, runs(even(falling)))
    assert row["verdict"] == "direction only"
    assert row["ours"].count("to 2.40") == 2
    assert row["note"].endswith("; mind")


def test_what_holds_whatever_is_left_open_is_reproduced() -> None:
    rows = varied(("", 512, runs(even(falling))), (SLOTS, 256, runs(even(falling))))
    row = verdict(opened(512, 256), rows)
    assert (row["verdict"], row["band"]) == ("reproduced", [1.1, 2.4])
    assert row["note"].startswith("holds in 2 of 2 settings")
    assert [one["choices"] for one in row["specifications"]] == [{SLOTS: 512}, {SLOTS: 256}]
    assert [one["varied"] for one in row["specifications"]] == ["", SLOTS]
    assert row["open"] == [{"key": SLOTS, "values": [512, 256], "source": "not stated"}]


def test_the_choice_that_decides_is_named() -> None:
    rows = varied(("", 512, runs(even(falling))), (SLOTS, 256, runs(even(lambda *_: 0.9))))
    row = verdict(opened(512, 256), rows)
    assert row["verdict"] == "depends"
    assert row["note"].startswith("holds in 1 of 2 settings; slots: holds at 512, not at 256")
    assert [one["agreement"] for one in row["specifications"]] == ["agrees", "differs"]


def test_a_reading_changes_the_check_and_not_the_runs() -> None:
    """Without loading, of which there is one second in every run, 2.4 is 2.44 and still 2.4."""
    rows = runs(even(lambda *_: 2.4))
    reading = {"key": "reading.it", "values": ["whole", "twice"], "source": "not stated"}
    whole = toy_check(rule="figure", paper=2.4)
    one = claim(check=whole, open=[reading | {"checks": {"twice": {"paper": 1.2}}}])
    found = verdict(one, rows)
    assert found["verdict"] == "depends"
    assert "it: holds at whole, not at twice" in found["note"]
    again = claim(check=whole, open=[reading | {"checks": {"twice": {"minus": "load_s"}}}])
    assert verdict(again, rows)["verdict"] == "reproduced"
    assert len(verdict(again, rows)["specifications"]) == 2
    assert again.of("code").open == ()


def test_values_that_exclude_each_other_need_not_all_hit_the_figure() -> None:
    """Swept as settings of `within` they had to; as a choice one of them holds, and is named."""
    plain = toy_check(rule="within", quantity="value", baselines=[], paper=12.0, step=1)
    rows = varied(
        ("", 512, runs(lambda *_: 12.0)),
        (SLOTS, 256, runs(lambda *_: 20.0)),
        (SLOTS, 128, runs(lambda *_: 40.0)),
    )
    row = verdict(opened(512, 256, 128, check=plain), rows)
    assert row["verdict"] == "depends"
    assert "slots: holds at 512, not at 256, 128" in row["note"]


def test_a_value_at_fewer_settings_counts_where_the_stated_one_is_the_same_at_them() -> None:
    """At 200 and 300 requests nobody reaches 2.4; at 100 and 300 both ends can be told."""
    stated = ("", 512, runs(even(falling)))
    ends = varied(stated, (SLOTS, 256, runs(even(falling), counts=(100, 300))))
    assert verdict(opened(512, 256), ends)["verdict"] == "reproduced"
    row = verdict(
        opened(512, 256), varied(stated, (SLOTS, 256, runs(even(falling), counts=(200, 300))))
    )
    assert row["verdict"] == "cannot be told"
    assert row["note"].startswith("holds in 1 of 1 settings (1 more")
    other = row["specifications"][1]
    assert other["agreement"] == "cannot be told"
    assert other["note"].startswith(
        "at fewer settings or seeds, where the stated value is 1.10 [1.10, 1.10]"
    )


def test_a_value_at_fewer_seeds_counts_where_the_stated_one_is_the_same_at_them() -> None:
    """The first five seeds give 1.9 whatever the slots, all ten 2.4."""

    def seconds(name: str, count: int, limit: int, seed: int) -> float:
        return 10.0 * ((1.9 if seed < 5 else 3.0) if name == "old" else 1.0)

    one = opened(512, 256, check=toy_check(rule="figure", paper=2.4))
    stated = ("", 512, runs(seconds, seeds=10))
    row = verdict(one, varied(stated, (SLOTS, 256, runs(seconds))))
    assert row["verdict"] == "cannot be told"
    assert row["specifications"][1]["note"].startswith(
        "at fewer settings or seeds, where the stated value is 1.90 [1.90, 1.90] (direction only)"
    )
    far = ("", 512, runs(even(lambda *_: 1.9), seeds=10))
    row = verdict(one, varied(far, (SLOTS, 256, runs(even(lambda *_: 2.4)))))
    assert row["verdict"] == "depends"


@pytest.mark.parametrize(("other", "said"), [(1.3, "cannot be told"), (1.05, "depends")])
def test_a_value_that_differs_by_noise_alone_decides_nothing(other: float, said: str) -> None:
    """1.45 [1.25, 1.65] agrees with 1.5 and 1.30 does not, nor can it be told from the former."""
    ratios = (1.25, 1.65, 1.35, 1.55, 1.45)

    def noisy(name: str, count: int, limit: int, seed: int) -> float:
        return 10.0 * (ratios[seed] if name == "old" else 1.0)

    one = opened(512, 256, check=toy_check(rule="figure", paper=1.5))
    varied_runs = runs(even(lambda *_: other))
    row = verdict(one, varied(("", 512, runs(noisy)), (SLOTS, 256, varied_runs)))
    assert row["specifications"][0]["agreement"] == "agrees"
    assert row["verdict"] == said


def test_a_value_that_was_not_run_is_no_verdict() -> None:
    row = verdict(opened(512, 256), varied(("", 512, runs(even(falling)))))
    assert row["verdict"] == "not run"
    assert row["note"].startswith("1 of 2 settings, of slots, were not run")


def test_a_choice_that_no_configuration_has_is_no_verdict() -> None:
    row = verdict(opened(512, 256), runs(even(falling)))
    assert (row["verdict"], row["note"]) == ("not run", "no run has policy.slots")


def test_a_further_value_may_have_been_run_at_some_settings_only() -> None:
    few = runs(even(falling), counts=(100, 300), seeds=5)
    rows = varied(("", 512, runs(even(falling), seeds=8)), (SLOTS, 256, few))
    assert verdict(opened(512, 256), rows)["verdict"] == "reproduced"


def test_variations_of_what_a_claim_does_not_leave_open_do_not_count() -> None:
    rows = varied(("", 512, runs(even(falling))), ("policy.other", 512, runs(even(lambda *_: 9.0))))
    assert verdict(claim(check=toy_check()), rows)["verdict"] == "reproduced"


def test_a_system_that_knows_no_such_choice_counts_for_every_value() -> None:
    """Only `old` has slots: with 256 of them it is as fast as `new`."""
    rows = runs(even(falling))
    new = rows[rows["config.system.name"] == "new"]
    old = rows[rows["config.system.name"] == "old"]
    both = varied(("", None, new), ("", 512, old), (SLOTS, 256, old.assign(end_to_end_s=10.0)))
    row = verdict(opened(512, 256), both)
    assert (row["verdict"], row["seeds"]) == ("depends", 5)


def test_a_side_that_names_the_choice_keeps_its_value() -> None:
    """`old` stays at 512 slots while those of `new` vary."""
    rows = runs(even(falling))
    fast = rows.assign(end_to_end_s=lambda r: r["end_to_end_s"] * 2)
    both = varied(("", 512, rows), (SLOTS, 256, fast))
    mine = toy_check(baselines=[{"config.system.name": "old", f"config.{SLOTS}": 512}])
    assert verdict(opened(512, 256), both)["verdict"] == "reproduced"
    assert verdict(opened(512, 256, check=mine), both)["verdict"] == "depends"


def test_null_is_a_value_where_it_is_listed() -> None:
    slower = runs(even(lambda *_: 0.9))
    rows = varied(("", 512, runs(even(falling))), (SLOTS, None, slower))
    assert "not at None" in verdict(opened(512, None), rows)["note"]


def test_a_choice_is_judged_over_every_choice_of_settings_too() -> None:
    """Only with 256 slots and at 300 requests is the figure the paper's."""
    counts = {"key": REQUESTS.removeprefix("config."), "values": [[100, 200, 300], [300]]}
    slots = {"key": SLOTS, "values": [512, 256]}
    at = {REQUESTS: {"each": [100, 200, 300]}, LIMIT: {"each": [8]}}
    one = claim(
        paper=2.4,
        check=toy_check(rule="figure", settings=at),
        open=[choice | {"source": "not stated"} for choice in (counts, slots)],
    )
    few = runs(even(lambda count, _: 2.4 if count == 300 else 1.5), counts=(100, 300))
    row = verdict(one, varied(("", 512, runs(even(lambda *_: 1.5))), (SLOTS, 256, few)))
    assert row["verdict"] == "depends"
    assert row["note"].startswith(
        "holds in 1 of 4 settings; holds at slots 256 with requests [300]"
    )
    assert [(s["varied"], s["over"]) for s in row["specifications"]][-1] == (SLOTS, counts["key"])


def test_a_choice_may_be_an_axis_of_the_matrix() -> None:
    at = {"settings": {REQUESTS: {"each": [100]}}, "rule": "figure"}
    choice = {"key": LIMIT.removeprefix("config."), "values": [8, 16], "source": "not stated"}
    row = verdict(
        claim(paper=2.4, check=toy_check(**at), open=[choice]),
        runs(even(lambda count, limit: 2.4 if limit == 8 else 1.2)),
    )
    assert row["note"].startswith("holds in 1 of 2 settings; max_output_tokens: holds at 8")


@pytest.mark.parametrize(
    ("word", "said"), [("input", "input"), ("not_testable", "not testable here")]
)
def test_a_number_that_is_fed_in_is_never_reproduced(word: str, said: str) -> None:
    row = verdict(claim(**{"check": None, word: "of the workload"}), pd.DataFrame())
    assert (row["verdict"], row["note"], row["ours"]) == (said, "of the workload", "")
