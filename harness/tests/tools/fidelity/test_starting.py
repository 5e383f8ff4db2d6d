"""Seconds of starts become what each further replica takes."""

import pytest

from harness.tools.fidelity.starting import summary


def test_what_a_further_replica_takes() -> None:
    found = summary({"1": [20.0, 22.0], "2": [25.0, 27.0]})
    assert found["mean_s"] == {"1": 21.0, "2": 26.0}
    assert found["further_replica_s"] == pytest.approx(5.0)
