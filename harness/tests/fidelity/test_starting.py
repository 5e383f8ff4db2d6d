"""Seconds of starts become what each further replica takes."""

import pytest

from harness.fidelity.starting import main, summary


def test_what_a_further_replica_takes() -> None:
    found = summary({"1": [20.0, 22.0], "2": [25.0, 27.0]})
    assert found["mean_s"] == {"1": 21.0, "2": 26.0}
    assert found["further_replica_s"] == pytest.approx(5.0)


def test_no_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--repeats", "0"]) == 2
    assert "--repeats=0 must be at least 1" in capsys.readouterr().err
