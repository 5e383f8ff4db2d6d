"""YAML that does not say one thing, or more than it seems to, is one sentence with its line."""

from itertools import pairwise
from pathlib import Path

import pytest

from harness.paths import ROOT
from harness.yaml_files import DEEPEST, check_yaml, read_yaml

ANCHORS = "abcdefgh"
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in pairwise(ANCHORS)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1, 2\n", "line 3: expected ',' or ']', but got '<stream end>'"),
        ("a:\tb\n\tc: 1\n", "line 1: found character '\\t' that cannot start any token"),
        ("a: {b: 1, b: 2}", "line 1: a.b is there twice, first in line 1"),
        ("a: 1\nb: 2\na: 3\n", "line 3: a is there twice, first in line 1"),
        ("a: !foo b", "line 1: a has the tag !foo, it must be a plain value"),
        ("a: !!python/object/apply:os.getpid []", "line 1: a has the tag "),
        ("a: &b {c: *b}", "line 1: a.c is *b, which holds itself or is not there"),
        ("? [a, b]\n: c", "line 1: a key must be a plain value"),
        ("a:\n  b: 1:30", "line 2: a.b=1:30 would be read as a number to the base of 60"),
        ("a: " + "[" * 9999 + "]" * 9999, f"is nested deeper than {DEEPEST} levels"),
        (BOMB, "line 6: this unfolds to more than 100,000 values"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^f\.yaml line \d+: ") as raised:
        check_yaml(text, "f.yaml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"f\.yaml line \d+: "):
        read_yaml(path)


def test_keys_have_lines() -> None:
    lines = check_yaml("a: 1\nb:\n  c: &x [1, 2]\n  d.e: {f: '1:30', g: *x}\n", "f.yaml")
    assert lines == {"a": 1, "b": 2, "b.c": 3, "b.d.e": 4, "b.d.e.f": 4, "b.d.e.g": 4}


def test_values_of_an_alias_and_of_plain_texts_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: &x {b: 1}\nc: *x\nd: '1:30'\n")
    assert read_yaml(path) == {"a": {"b": 1}, "c": {"b": 1}, "d": "1:30"}


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.yaml: No such file"):
        read_yaml(tmp_path / "no.yaml")
    (tmp_path / "f.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"f\.yaml is no text in UTF-8"):
        read_yaml(tmp_path / "f.yaml")


def test_all_scenario_files_are_read() -> None:
    files = list((ROOT / "scenarios").rglob("*.yaml"))
    assert len(files) >= 4
    assert all(check_yaml(path.read_text(encoding="utf-8"), path.name) for path in files)


def test_a_date_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("begins: 2026-01-01\n2026-01-02: ends\n")
    assert read_yaml(path) == {"begins": "2026-01-01", "2026-01-02": "ends"}
