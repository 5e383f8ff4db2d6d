"""A policy outside the tree, as `make rank` takes it in."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.__main__ import main
from harness.config.build import build
from harness.config.engine_limits import USUAL, with_limits
from harness.config.trust import TRUSTED_PACKAGES
from harness.rank import checked, place_of, written
from harness.tests.support.serving import serve, workload

MINE = Path(__file__).parent / "data" / "policies" / "mine.py"


def test_a_python_file_is_named_with_the_usual_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(MINE.parent)
    file = written(MINE, "", tmp_path)
    assert file == tmp_path / "conf" / "policy" / "mine.yaml"
    node = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert node["_target_"] == "mine.ShortestPrompt"
    monkeypatch.setenv(TRUSTED_PACKAGES, "mine")
    policy = build(with_limits(node, USUAL), offered={})
    requests = serve(workload([90, 50, 10], [4, 4, 4]), policy, gpus=1).requests
    assert requests["finished_s"].notna().all()


def test_a_constructor_with_constants_of_its_own_needs_a_yaml_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = MINE.read_text(encoding="utf-8").replace("rule: Con", "quantum_s: float, rule: Con")
    own = tmp_path / "quanta.py"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="ShortestPrompt wants quantum_s: give it a default"):
        written(own, "", tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch.py"], "nosuch.py is no file"),
        ([str(MINE), "nosuch"], "nosuch is no load; there are azure_conv"),
        ([f"{MINE}:Other"], "has policies ShortestPrompt; name one as mine.py:CLASS"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["rank", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_place_is_a_median_and_a_count() -> None:
    rows = [
        {"load": load, "policy": policy, "figure": "jct_s_mean", "regret": regret, "rank": rank}
        for load in ("a", "b")
        for policy, regret, rank in (("mine", 0.5, 2), ("other", 0.0, 1))
    ]
    also = {"policy": "mine", "figure": "preemptions", "regret": np.nan, "rank": np.nan}
    found = place_of(pd.DataFrame([*rows, also]), "mine")
    assert [*found.loc["mean JCT s"]] == ["+50%", "+0% (other)", "0 of 2"]
    assert len(found) == 1


@pytest.mark.slow
def test_checks_are_counted_and_those_that_fail_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the policy as it is, and with keys that are others each time."""
    text = MINE.read_text(encoding="utf-8")
    drawn = text.replace("table.prompt_tokens.astype(np.float64)", "np.random.random(len(table))")
    (tmp_path / "drawn.py").write_text(drawn, encoding="utf-8")
    monkeypatch.setenv(TRUSTED_PACKAGES, "mine,drawn")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(MINE.parent), *sys.path])
    passed, failed, left_out = checked(written(MINE, "", tmp_path / "a"))
    assert (passed + len(left_out), failed) == (9, [])
    passed, failed, _ = checked(written(tmp_path / "drawn.py", "", tmp_path / "b"))
    assert passed < len(failed)
    assert failed[0].startswith("FAILED only looks, drains and adds up: a burst: ")
