"""What iterations with prompts took beyond a profile, found in whole runs.

    python -m harness.tools.fidelity.prompt_pause results/fidelity_vllm/h200-141g.json \
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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.config.paths import PROFILES
from harness.costs.iteration import IterationTable
from harness.costs.model import ProfileCosts
from harness.costs.model_facts import model_facts, shape_of
from harness.report.agreement import bias_text, pooled_bias
from harness.tools.calibrate.stored import digest
from harness.tools.fidelity.real_engine import MeasuredSetting, costs_of, simulated, stored
from harness.tools.fitting.stored import rounded

FITTED = ("makespan_s", "jct_s_mean", "ttft_s_mean")
GRID_S = np.arange(0.0, 6.05e-3, 1e-4)
NEARLY = 1.1
"""Times the least squares up to which a constant fits nearly as well."""
NOTE = (
    "{} were added to every iteration with a prompt: fitted to every other setting of whole "
    "runs, whose measurements were divided by a probe of the CPU "
    "(harness.tools.fidelity.prompt_pause)"
)

Entries = Sequence[Mapping[str, Any]]
"""Stored settings of one model."""


class Paused(ProfileCosts):
    """Costs of a machine whose iterations with prompts take so many seconds longer."""

    def __init__(self, costs: ProfileCosts, pause_s: float) -> None:
        vars(self).update(vars(costs))
        self._costs, self._pause_s = costs, pause_s

    def table(self, service: str, tensor_parallel: int) -> IterationTable:
        """As without, but for the fixed cost of prompts."""
        table = self._costs.table(service, tensor_parallel)
        return table._replace(prefill_base_s=table.prefill_base_s + self._pause_s)


class Fitted(NamedTuple):
    """A constant, and the least and the most that fit nearly as well, in seconds."""

    pause_s: float
    low_s: float
    high_s: float

    def __str__(self) -> str:
        """In milliseconds."""
        return f"{1e3 * self.pause_s:.1f} ms ({1e3 * self.low_s:.1f} to {1e3 * self.high_s:.1f})"


def rows_of(
    entries: Entries, costs: ProfileCosts, resolved: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Measured and simulated figures of stored settings."""
    return [
        {"figure": name, "measured": entry["means"][name]["measured"], "simulated": guess[name]}
        for entry in entries
        for guess in [simulated(MeasuredSetting.stored(entry), costs, resolved)]
        for name in FITTED
    ]


def fitted_pause(entries: Entries, costs: ProfileCosts, resolved: Mapping[str, Any]) -> Fitted:
    """The constant with the least squares of the logarithms of simulated over measured.

    Of a grid: whole runs change in steps, and there are several least ones nearby.
    """

    def off(pause_s: float) -> float:
        rows = rows_of(entries, Paused(costs, pause_s), resolved)
        return float(np.sum([np.log(row["simulated"] / row["measured"]) ** 2 for row in rows]))

    squares = np.array([off(float(it)) for it in GRID_S])
    near = GRID_S[squares <= NEARLY * squares.min()]
    return Fitted(float(GRID_S[squares.argmin()]), float(near.min()), float(near.max()))


def add_to(profile: Path, found: Fitted) -> None:
    """Add the constant to a stored profile."""
    content = json.loads(profile.read_text(encoding="utf-8"))
    other = content["tensor_parallel"]["1"]["prefill"]["other"]
    other["base_s"] = rounded([it + found.pause_s for it in other["base_s"]])
    content["note"] = NOTE.format(found)
    if content.pop("sha256", None):
        content["sha256"] = digest(content)
    profile.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n", encoding="utf-8")


def profiles_of(folder: Path, models: Iterable[str]) -> dict[Path, str]:
    """Profiles of a folder with the matrices of these models, and which that is.

    Raises ValueError where one has a constant already.
    """
    shapes, found = {shape_of(model_facts(model)): model for model in models}, {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        shape = shape_of(model_facts(content["model"])) if "tensor_parallel" in content else None
        if shape in shapes:
            if "note" in content:
                raise ValueError(f"{path} has a constant already: {content['note']}")
            found[path] = shapes[shape]
    return found


def run(options: argparse.Namespace) -> None:
    """Fit, test and, if asked to, write. Raises ValueError for what cannot be fitted."""
    content = stored(options.stored)
    profiles = profiles_of(PROFILES / options.profile, content["resolved"])
    before, after, found = [], [], {}
    for model, resolved in content["resolved"].items():
        entries = [it for it in content["settings"] if it["model"] == model]
        if any("means" not in it for it in entries):
            raise ValueError(f"{options.stored}: {model} has every repetition; calibrate instead")
        costs = costs_of(options, resolved)
        found[model] = fitted_pause(entries[::2], costs, resolved)
        before += rows_of(entries[1::2], costs, resolved)
        after += rows_of(entries[1::2], Paused(costs, found[model].pause_s), resolved)
    added = ", ".join(f"{it} for {name}" for name, it in found.items())
    biases = (
        f"{name} {bias_text(pooled_bias(after, name))} (without it "
        f"{pooled_bias(before, name).value:+.1%})"
        for name in FITTED
    )
    said = (
        f"{added} were added to every iteration with a prompt, fitted to every other setting; "
        f"settings that the fit has not seen are off by {', '.join(biases)}"
    )
    print(said)
    if options.write:
        for path, model in profiles.items():
            add_to(path, found[model])
        content["note"] = (
            f"measurements were divided by a probe of the CPU, to be measured anew; {said}"
        )
        options.stored.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Fit, test and, if asked to, write; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("stored", type=Path, help="of fidelity_vllm, with means of settings")
    add("--gpu", required=True)
    add("--profile", required=True, help="folder under harness/profiles")
    said = "add the constants to the profiles of these models, and those of the same matrices"
    add("--write", action="store_true", help=said)
    try:
        run(parser.parse_args(arguments))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
