"""What changed of the published figures, from a repository of its own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.claims.changes import alike, main
from harness.tests.support.claims import words

COLUMNS = {"p.time": "extra_s", "p.whole": "end_to_end_s", "p.jct": "jct_s_mean"}


def row(name: str, **changes: Any) -> dict[str, Any]:
    """A verdict as it is published."""
    usual = {"id": name, "ours": "1.20 [1.10, 1.30]", "verdict": "reproduced", "note": "over 3"}
    return usual | changes


def publish(root: Path, *rows: dict[str, Any]) -> None:
    """Write the verdicts of the working tree."""
    (root / "results" / "claims" / "p_verdicts.json").write_text(json.dumps(rows))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose only revision has three verdicts."""
    folder = tmp_path / "results" / "claims"
    folder.mkdir(parents=True)
    check = {"rule": "within", "scenario": "toy"}
    claims = [
        words(id=name, kind="value", paper=1, check=check | {"columns": [column]})
        for name, column in COLUMNS.items()
    ]
    (folder / "p.yaml").write_text(yaml.safe_dump({"claims": claims}))
    publish(tmp_path, *map(row, COLUMNS))
    me = ("-c", "user.name=n", "-c", "user.email=e@x")
    for given in (("init", "-q"), ("add", "."), (*me, "commit", "-q", "-m", "m")):
        subprocess.run(["git", *given], cwd=tmp_path, check=True)
    return tmp_path


def test_nothing_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "3 verdicts and their figures are equal\n"


def test_of_lists_it_is_said_how_much_changed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(root, *(row(name, open=[{"key": "a"}, {"key": "b"}]) for name in COLUMNS))
    me = ("-c", "user.name=n", "-c", "user.email=e@x")
    subprocess.run(["git", *me, "commit", "-q", "-a", "-m", "m"], cwd=root, check=True)
    publish(root, *(row(name, open=[{"key": "a"}, {"key": "c"}, {}]) for name in COLUMNS))
    assert main(["HEAD", "--root", str(root)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"p_verdicts.json: {name}: open: 2 of 3 differ" for name in COLUMNS]


def test_a_figure_a_verdict_and_a_claim_that_changed_are_named(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(
        root,
        row("p.time", verdict="not reproduced"),
        row("p.jct", ours="1.21 [1.10, 1.30]", more="a key that was not there"),
        row("p.new"),
    )
    assert main(["HEAD", "--root", str(root)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "p_verdicts.json: p.time: verdict was 'reproduced', is 'not reproduced'",
        "p_verdicts.json: p.whole is only in the past",
        "p_verdicts.json: p.jct: ours was '1.20 [1.10, 1.30]', is '1.21 [1.10, 1.30]'",
        "p_verdicts.json: p.new is only there now",
    ]


def test_wall_clock_figures_are_left_aside(root: Path) -> None:
    publish(
        root,
        row("p.time", ours="9.99 [9.00, 9.99]", note="elsewhere"),
        row("p.whole", ours="1.21 [1.00, 1.40]"),
        row("p.jct"),
    )
    assert main(["HEAD", "--root", str(root)]) == 0


@pytest.mark.parametrize(
    ("key", "right", "same"),
    [
        ("ours", "1.21 [0.90, 1.50]", True),
        ("ours", "1.22 [1.10, 1.30]", False),
        ("ours", "1.20 [1.10, 1.30] to 1.30 [1.10, 1.30]", False),
        ("note", "over 4", False),
        ("verdict", "1.21 [0.90, 1.50]", False),
    ],
)
def test_what_has_wall_clock_time_in_it_agrees_nearly(key: str, right: str, same: bool) -> None:
    left = row("p.whole")[key]
    assert alike(key, left, right, {"end_to_end_s"}) == same
    assert not alike(key, left, right, {"jct_s_mean"})


def test_an_unknown_revision_is_one_sentence(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nonsense", "--root", str(root)]) == 2
    assert capsys.readouterr().err == "error: fatal: Not a valid object name nonsense\n"
