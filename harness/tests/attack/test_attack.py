"""The attack of every day: few bad inputs and kills; `make attack` has the full number."""

import json
import re
from pathlib import Path
from random import Random

import pytest

from harness.attack import kills
from harness.attack.__main__ import main
from harness.attack.cases import HERE, KINDS, MODEL, PROFILE, Case, case_of, of_profile, write_case
from harness.attack.inputs import attack
from harness.costs.profiles import CALIBRATION
from harness.paths import PROFILES


def test_the_same_seed_makes_the_same_cases() -> None:
    ours = [case_of(3, number) for number in range(40)]
    assert [case_of(3, number) for number in range(40)] == ours
    assert [case_of(4, number) for number in range(40)] != ours
    assert {case.kind for case in ours} == {"key", "scenario", "trace", "profile"}
    assert len(KINDS) <= 40


def test_every_bad_profile_differs_from_the_good_one() -> None:
    """A number on top of a file was changed in a copy; what is right was let in, and told."""
    good = {
        name: (PROFILES / PROFILE / name).read_text() for name in (f"{MODEL}.json", CALIBRATION)
    }
    for number in range(60):
        files = of_profile(Random(number)).files
        changed = [name for name in good if files[f"profile/{name}"] != good[name]]
        assert len(changed) == 1
        assert files[f"profile/{changed[0]}"] != json.dumps(json.loads(good[changed[0]]))


def test_a_case_names_its_own_folder(tmp_path: Path) -> None:
    case = Case("trace", (f"workload.source={HERE}/a/b.csv",), {"a/b.csv": "x\n"})
    words = write_case(case, tmp_path)
    assert f"workload.source={tmp_path}/a/b.csv" in words
    assert f"results={tmp_path}/results" in words
    assert (tmp_path / "a" / "b.csv").read_text() == "x\n"


@pytest.mark.slow
def test_what_is_let_in_against_its_mark_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack that finds nothing on a command that lets everything in would be none."""
    harmless = Case("key", ("seed=1",), is_marked=True)
    broken = Case("key", ("hydra.searchpath=[file:///nowhere]", "seed=x"))
    cases = [harmless, Case("key", ("seed=1",)), broken]
    monkeypatch.setattr("harness.attack.inputs.case_of", lambda _, number: cases[number])
    found = {it.number: it for it in attack(0, range(3), at_once=2, folder=tmp_path)}
    outcomes = [found[number].outcome for number in range(3)]
    assert outcomes == ["wrongly accepted", "accepted", "refused"]
    assert "harness/run.py" in found[0].report()


@pytest.mark.slow
def test_six_bad_inputs_and_two_kills(capfd: pytest.CaptureFixture[str]) -> None:
    """A driver and a worker are killed."""
    code = main(["--inputs", "6", "--kills", "2", "--at-once", "1"])
    last = capfd.readouterr().out.strip().splitlines()[-1]
    assert re.match(r"inputs: 6 \(\d+ accepted, \d+ refused, \d+ failed cell, 0 trace", last), last
    assert "kills: 2 (2 equal, 0 lost, 0 doubled, 0 different, 0 unfinished)" in last
    assert code == 0


@pytest.mark.parametrize(("option", "value"), [("inputs", -5), ("kills", -3), ("at-once", 0)])
def test_a_number_too_small_is_refused(
    option: str, value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """None at a time would never end."""
    with pytest.raises(SystemExit) as ended:
        main([f"--{option}", str(value)])
    assert ended.value.code == 2
    assert f"--{option} {value} is less than" in capsys.readouterr().err


def test_runs_that_differ_are_told_apart(tmp_path: Path) -> None:
    for name in ("one", "other"):
        for run in range(kills.CELLS):
            (tmp_path / name / "adhoc" / str(run)).mkdir(parents=True)
    assert kills._runs(tmp_path / "one").keys() == kills._runs(tmp_path / "other").keys()
    (tmp_path / "one" / "adhoc" / "0").rmdir()
    assert kills._compared(tmp_path / "one", tmp_path / "other") == "lost"
    (tmp_path / "one" / "adhoc" / "0").mkdir()
    (tmp_path / "one" / "adhoc" / ".tmp-0").mkdir()
    assert kills._compared(tmp_path / "one", tmp_path / "other") == "doubled"
