"""EcoServe's loads are fractions of measured capacities; no rate is typed in but the paper's."""

import re

import pandas as pd
import pytest

from harness.claims.judge import scenario_file
from harness.config.paths import ROOT
from harness.tests.support.configured import composed
from harness.workloads.load import capacity_per_s
from systems.ecoserve.effects import ALL_SETTINGS, DATA, MODELS, PAPER_RATES, RATES_ALL
from systems.ecoserve.facts import LOADS

SCENARIOS = sorted(path.stem for path in ROOT.glob("scenarios/scenario/ecoserve_*.yaml"))


def served_per_s(data: str, model: str) -> float:
    """Of the scenario whose loads are fractions of it."""
    with composed(f"+scenario=ecoserve_rates_{data}{model}") as composer:
        arrivals = composer.whole().workload["arrivals"]
        return capacity_per_s(arrivals["table"], arrivals["setting"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rates_are_those_of_table_2_or_loads(scenario: str) -> None:
    text = (ROOT / "scenarios" / "scenario" / f"{scenario}.yaml").read_text(encoding="utf-8")
    rates = re.findall(r"^[^#\n]*rate_per_s: *(\[[^\]\n]*|[^,}\s]*)", text, re.MULTILINE)
    typed = {part.strip(" [") for found in rates for part in found.split(",")} - {"null"}
    assert typed <= {f"{rate:g}" for rate in PAPER_RATES.values()}


def test_grids_of_rates_are_loads() -> None:
    assert all("workload.arrivals.load" in scenario_file(name)["matrix"] for name in RATES_ALL)


def test_loads_on_the_page_are_over_the_capacity_that_scenarios_use() -> None:
    """Published loads: the paper's rates over runs of the backlog that the table was made from."""
    facts = pd.read_csv(ROOT / "results" / "claims" / "facts" / "ecoserve.csv").set_index("says")[
        "ours"
    ]
    expected = {
        f"{PAPER_RATES[data]:g}/s, {DATA[data]}, {MODELS[model]}": PAPER_RATES[data]
        / served_per_s(data, model)
        for data, model in ALL_SETTINGS
    }
    assert {load.says for load in LOADS} == set(expected)
    assert {says: facts[says] for says in expected} == pytest.approx(expected, rel=2e-3)
