"""Policies built from their files alone."""

from pathlib import Path

import pytest

from harness.yaml_files import read_policy

TEXT = """
_target_: baselines.srtf.Srtf
max_num_seqs: 4
more: {same: "${policy.max_num_seqs}"}
"""


def test_a_policy_refers_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(TEXT)
    assert read_policy(path)["more"] == {"same": 4}
    path.write_text(TEXT.replace("max_num_seqs}", "seats}"))
    with pytest.raises(
        ValueError, match=r"policy.yaml: Interpolation key 'policy.seats' not found"
    ):
        read_policy(path)
