"""Every file under scenarios/ composes and builds; a new one is covered by existing.

Policies are built and served in `engines/test_every_policy.py`.
"""

import json
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from pydoc import locate

import pytest
from omegaconf import OmegaConf

from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice
from harness.predictors.proxy_card import CARD, ENCODER, FIELDS, TOKENIZER, WEIGHTS, sha256
from harness.runs.composed_cells import Matrix
from harness.runs.config import VARIANTS
from harness.runs.matrix import axes_of
from harness.tests.support.configured import composed, first_cell_of

SCENARIOS = ROOT / "scenarios"
GROUPS = ("engine", "hardware", "workload", "predictor", "system")
CHOICES = [(group, path.stem) for group in GROUPS for path in (SCENARIOS / group).glob("*.yaml")]
# What no file of the project holds: a prompt file, a trained model.
FILES = {
    ("workload", "text_prompts"): "workload.requests=1 workload.file",
    ("workload", "trace"): "workload.model=vicuna-13b-v1.5 workload.file",
    ("predictor", "proxy"): "predictor.checkpoint",
}
MEASURE = [("engine", f"vllm{kind}") for kind in ("", "_ray", "_small_kv", "_timed", "_containers")]
FIGURES = sorted(path.stem for path in (SCENARIOS / "scenario").glob("*.yaml"))


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_builds_a_cell(group: str, choice: str, tmp_path: Path) -> None:
    if group == "engine" and choice.startswith("vllm"):
        pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    plain = _workload(choice) if group == "system" else []
    if (group, choice) in MEASURE:
        plain.append("+engine.models={vicuna-13b-v1.5: tiny}")  # a hub's needs a revision
    if (group, choice) in FILES:
        plain += f"{FILES[group, choice]}={_file(tmp_path, choice)}".split()
    cell = first_cell_of(f"{group}={choice}", *plain, "name=tried")
    assert cell.folder.parent.name == "tried"
    assert cell.config[group] or choice == "none"
    assert group != "system" or cell.system.name == choice


def _workload(system: str) -> list[str]:
    """A workload with a history for a placement that plans from one."""
    placement = locate(read_choice("system", system)["placement"]["_target_"])
    assert isinstance(placement, type)
    plans = "history" in signature(placement).parameters
    return ["workload=shared_services"] if plans else []


def _file(folder: Path, choice: str) -> Path:
    """The least that a choice takes for what it reads."""
    if choice == "text_prompts":
        (folder / "prompts.csv").write_text("prompt,response_tokens\nWhy?,3\n")
        return folder / "prompts.csv"
    if choice == "trace":
        (folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,3\n")
        return folder / "trace.csv"
    for name in (WEIGHTS, TOKENIZER, ENCODER):
        (folder / name).touch()
    card = dict.fromkeys(FIELDS) | {"weights_sha256": sha256(folder / WEIGHTS)}
    (folder / CARD).write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize("scenario", FIGURES)
def test_every_scenario_builds_its_first_cell_at_several_places(
    scenario: str, tmp_path: Path
) -> None:
    text = (SCENARIOS / "scenario" / f"{scenario}.yaml").read_text()
    if "override /engine: vllm" in text:
        pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    chosen = [f"+scenario={scenario}"]
    if "override /workload: trace" in text:
        chosen += f"{FILES['workload', 'trace']}={_file(tmp_path, 'trace')}".split()
    with composed(*chosen) as config:
        matrix = Matrix(config)
        cell = next(cell for place in matrix.places if (cell := matrix.cell_at(place)))
        assert matrix.config.name == scenario == cell.folder.parent.name
        assert list(cell.setting) == list(axes_of(matrix.config.matrix))
        assert len(matrix.places) > 1
        assert matrix.config.expected_minutes > 0


def _variants(variant: str) -> Iterator[tuple[str, str]]:
    """Systems whose file has keys for a variant, and each of those keys."""
    for group, name in CHOICES:
        if group == "system":
            node = read_choice(group, name)
            yield from ((name, str(key)) for key in node.get("by_variant", {}).get(variant, {}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_system_reads_every_key_of_its_variants(variant: str) -> None:
    """Other keys are refused where they are not read; these stand aside until referred to."""
    found = list(_variants(variant))
    assert found
    for name, key in found:
        text = OmegaConf.to_yaml(read_choice("system", name))
        assert f"${{system.by_variant.${{variant}}.{key}}}" in text, (name, key)
