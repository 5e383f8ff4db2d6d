"""A YAML file that cannot be read is one sentence with its line."""

from pathlib import Path

import pytest

from harness.config.yaml_files import read_policy, read_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1, 2\n", " line 3: expected ',' or ']', but got '<stream end>'"),
        ("a: {b: 1, b: 2}", " line 1: found duplicate key b"),
        ("a: 1\nb: 2\na: 3\n", " line 3: found duplicate key a"),
        ("a: !foo b", " line 1: could not determine a constructor for the tag"),
        ("5", " holds neither keys nor a list"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"f\.yaml") as raised:
        read_yaml(path)
    assert str(raised.value).startswith(f"{path}{said}")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.yaml: No such file"):
        read_yaml(tmp_path / "no.yaml")
    (tmp_path / "f.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"f\.yaml is no text in UTF-8"):
        read_yaml(tmp_path / "f.yaml")


def test_a_date_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("begins: 2026-01-01\n2026-01-02: ends\n")
    assert read_yaml(path) == {"begins": "2026-01-01", "2026-01-02": "ends"}


POLICY = """
_target_: baselines.srtf.Srtf
rule: {max_num_seqs: 4}
more: {same: "${policy.rule.max_num_seqs}"}
"""


def test_a_policy_refers_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    assert read_policy(path)["more"] == {"same": 4}
    path.write_text(POLICY.replace("rule.max_num_seqs}", "seats}"))
    with pytest.raises(
        ValueError, match=r"policy.yaml: Interpolation key 'policy.seats' not found"
    ):
        read_policy(path)
