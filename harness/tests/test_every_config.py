"""Every file under scenarios/ composes and builds; a new one is covered by existing."""

import json
from math import prod
from pathlib import Path

import pytest

from harness.paths import ROOT
from harness.predictors.proxy_card import CARD, ENCODER, FIELDS, TOKENIZER, WEIGHTS, sha256
from harness.tests.support.configured import composed, first_cell_of

SCENARIOS = ROOT / "scenarios"
GROUPS = ("engine", "hardware", "workload", "policy", "predictor", "system")
CHOICES = [(group, path.stem) for group in GROUPS for path in (SCENARIOS / group).glob("*.yaml")]
# What no file of the project holds: a prompt file, a trained model.
FILES = {
    ("workload", "text_prompts"): "workload.file",
    ("predictor", "proxy"): "predictor.checkpoint",
}
FIGURES = sorted(path.stem for path in (SCENARIOS / "scenario").glob("*.yaml"))


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_builds_a_cell(group: str, choice: str, tmp_path: Path) -> None:
    if group == "engine" and choice.startswith("vllm"):
        pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    plain = ["predictor=oracle"] if group == "policy" else []
    if (group, choice) in FILES:
        plain.append(f"{FILES[group, choice]}={_file(tmp_path, choice)}")
    cell = first_cell_of(f"{group}={choice}", *plain, "name=tried")
    assert cell.folder.parent.name == "tried"
    assert cell.config[group] or choice == "none"


def _file(folder: Path, choice: str) -> Path:
    """The least that a choice takes for what it reads."""
    if choice == "text_prompts":
        (folder / "prompts.csv").write_text("prompt,response_tokens\nWhy?,3\n")
        return folder / "prompts.csv"
    for name in (WEIGHTS, TOKENIZER, ENCODER):
        (folder / name).touch()
    card = dict.fromkeys(FIELDS) | {"weights_sha256": sha256(folder / WEIGHTS)}
    (folder / CARD).write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize("system", [name for group, name in CHOICES if group == "system"])
def test_a_system_bears_the_name_of_its_file(system: str) -> None:
    assert first_cell_of(f"system={system}").system.name == system


@pytest.mark.parametrize("scenario", FIGURES)
def test_every_scenario_builds_its_first_cell_and_is_a_comparison(scenario: str) -> None:
    if "override /engine: vllm" in (SCENARIOS / "scenario" / f"{scenario}.yaml").read_text():
        pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    cell = first_cell_of(f"+scenario={scenario}")
    with composed(f"+scenario={scenario}") as config:
        assert config.name == scenario == cell.folder.parent.name
        assert config.compare.reference in config.matrix[config.compare.axis]
        assert list(cell.setting) == list(config.matrix)
        assert prod(len(values) for values in config.matrix.values()) > 1
        assert config.expected_minutes > 0
