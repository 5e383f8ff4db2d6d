"""Every file under scenarios/ composes and builds; a new one is covered by existing."""

from math import prod

import pytest

from harness.run import ROOT
from harness.tests.configured import composed, first_cell_of

SCENARIOS = ROOT / "scenarios"
GROUPS = ("engine", "hardware", "workload", "policy", "predictor", "system")
CHOICES = [(group, path.stem) for group in GROUPS for path in (SCENARIOS / group).glob("*.yaml")]
FIGURES = sorted(path.stem for path in (SCENARIOS / "scenario").glob("*.yaml"))


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_builds_a_cell(group: str, choice: str) -> None:
    if group == "engine" and choice.startswith("vllm"):
        pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    # Planners need measured lengths and a batch rule, which not every workload and policy has.
    plain = ["system=fixed"] if group in ("workload", "policy") else []
    cell = first_cell_of(f"{group}={choice}", *plain, "name=tried")
    assert cell.folder.parent.name == "tried"
    assert cell.config[group] or choice == "none"


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
