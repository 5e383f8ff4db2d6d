"""What iterations with prompts took beyond a profile, found in whole runs.

    python -m harness.fidelity.prompt_pause results/fidelity_vllm/h200-141g.json \
        --gpu H200-141G --profile h200-141g_vllm

For profiles that were fitted to the least of their repetitions, none of which are stored. One
constant per model, added to every iteration with a prompt, is fitted to every other stored setting
and tested on the settings between them. Prints the bias of both halves without it and with it;
`--write` adds it to the profiles, whose note says so, and says it in the stored file. Measured
anew, a profile needs none.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from harness.calibrate.stored import digest
from harness.config.engine_limits import LIMITS
from harness.config.paths import PROFILES
from harness.costs.iteration import IterationTable
from harness.costs.model import ProfileCosts
from harness.costs.model_facts import model_facts, shape_of
from harness.fidelity.agreement import bias_text, pooled_bias
from harness.fidelity.settings import Setting, costs_of, simulated

FITTED = ("makespan_s", "jct_s_mean", "ttft_s_mean")
MOST_S = 0.02
ADDED = "added to every iteration with a prompt, fitted to every other setting"
NOTE = (
    "{:.2f} ms were added to every iteration with a prompt: fitted to every other setting of whole "
    "runs, whose measurements were divided by a probe of the CPU (harness.fidelity.prompt_pause)"
)


class Paused(ProfileCosts):
    """Costs of a machine whose iterations with prompts take so many seconds longer."""

    def __init__(self, costs: ProfileCosts, pause_s: float) -> None:
        vars(self).update(vars(costs))
        self._costs, self._pause_s = costs, pause_s

    def table(self, service: str, tensor_parallel: int) -> IterationTable:
        """As without, but for the fixed cost of prompts."""
        table = self._costs.table(service, tensor_parallel)
        return table._replace(prefill_base_s=table.prefill_base_s + self._pause_s)


def rows_of(
    entries: Sequence[Mapping[str, Any]], costs: ProfileCosts, resolved: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Measured and simulated figures of stored settings of one model."""
    rows = []
    for entry in entries:
        setting = Setting(**{name: entry[name] for name in Setting.__slots__})
        guess = simulated(setting, costs, {name: resolved[name] for name in LIMITS})
        rows += [
            {"figure": name, "measured": entry["means"][name]["measured"], "simulated": guess[name]}
            for name in FITTED
        ]
    return rows


def fitted_pause_s(
    entries: Sequence[Mapping[str, Any]], costs: ProfileCosts, resolved: Mapping[str, Any]
) -> float:
    """The constant with the least squares of the logarithms of simulated over measured."""

    def off(pause_s: float) -> float:
        rows = rows_of(entries, Paused(costs, pause_s), resolved)
        return float(np.sum([np.log(row["simulated"] / row["measured"]) ** 2 for row in rows]))

    found = minimize_scalar(off, bounds=(0.0, MOST_S), method="bounded", options={"xatol": 1e-5})
    return float(found.x)


def add_to(profile: Path, pause_s: float) -> None:
    """Add the constant to a stored profile. ValueError for one that has it."""
    content = json.loads(profile.read_text(encoding="utf-8"))
    if "note" in content:
        raise ValueError(f"{profile} has a constant already: {content['note']}")
    other = content["tensor_parallel"]["1"]["prefill"]["other"]
    other["base_s"] = [float(f"{it + pause_s:.6g}") for it in other["base_s"]]
    content["note"] = NOTE.format(1e3 * pause_s)
    if content.pop("sha256", None):
        content["sha256"] = digest(content)
    profile.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n", encoding="utf-8")


def held_out_text(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str:
    """How far the settings are off that the fit has not seen, without and with the constants."""
    biases = (
        f"{name} {bias_text(pooled_bias(after, name))} (without it "
        f"{pooled_bias(before, name).value:+.1%})"
        for name in FITTED
    )
    return f"settings that the fit has not seen are off by {', '.join(biases)}"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("stored", type=Path, help="of fidelity_vllm, with means of settings")
    add("--gpu", required=True)
    add("--profile", required=True, help="folder under harness/profiles")
    said = "add the constants to the profiles of these models, and those of the same matrices"
    add("--write", action="store_true", help=said)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Fit, test and, if asked to, write; returns the exit status."""
    options = _options(arguments)
    content = json.loads(options.stored.read_text(encoding="utf-8"))
    before, after, pauses = [], [], {}
    for model, resolved in content["resolved"].items():
        entries = [it for it in content["settings"] if it["model"] == model]
        if any("means" not in it for it in entries):
            print(f"{options.stored}: {model} has every repetition; calibrate", file=sys.stderr)
            return 2
        costs = costs_of(options, resolved)
        pauses[model] = fitted_pause_s(entries[::2], costs, resolved)
        before += rows_of(entries[1::2], costs, resolved)
        after += rows_of(entries[1::2], Paused(costs, pauses[model]), resolved)
    added = ", ".join(f"{1e3 * pause_s:.2f} ms ({name})" for name, pause_s in pauses.items())
    said = f"{ADDED}: {added}; {held_out_text(before, after)}"
    print(said)
    if options.write:
        try:
            _write(options, content, pauses, said)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    return 0


def _write(
    options: argparse.Namespace, content: dict[str, Any], pauses: Mapping[str, float], said: str
) -> None:
    """Add the constants to the profiles, and say so in the stored file."""
    folder = PROFILES / options.profile
    shapes = {shape_of(model_facts(model)): pause_s for model, pause_s in pauses.items()}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if (
            "tensor_parallel" in found
            and (shape := shape_of(model_facts(found["model"]))) in shapes
        ):
            add_to(path, shapes[shape])
    content["note"] = (
        f"measurements were divided by a probe of the CPU, to be measured anew; {said}"
    )
    options.stored.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
