"""How far simulated times are from real vLLM: `python -m harness.tools.fidelity.real_engine`.

Workloads that the profile never saw, from half of what the engine can serve to more than that,
under the order of arrival and an order that preempts.
Repetitions of all settings are interleaved, and every one is stored as it was measured. On a CPU,
whose speed drifts where others share it, designed batches before, between and after the repetitions
say how fast it was in those minutes, and each is held against what is simulated at that speed
(`speed`); on a GPU, against the profile as it is. What is said of a figure: `agreement`.
`--again FILE` simulates stored settings with the profile of today, and measures nothing.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.config.engine_limits import LIMITS
from harness.costs.model import ProfileCosts
from harness.report.agreement import (
    AIMS,
    bias_text,
    compare,
    counts_text,
    late_text,
    pooled_bias,
    row_of,
    word_for,
)
from harness.runs import published
from harness.tools.fidelity.settings import LAG, POLICIES, MeasuredSetting, costs_of, simulated
from harness.tools.fidelity.speed import (
    BATCH,
    AtSpeed,
    Speed,
    Totals,
    against,
    reference_of,
    speed_from,
    speeds_between,
    speeds_text,
)


def compared(content: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all settings: every figure simulated at the speed of the repetition.

    `as_profiled` is what is simulated by the profile as it is. The engine has the limits and the KV
    that vLLM resolved.
    """
    rows = []
    for entry in content["settings"]:
        setting = MeasuredSetting(**{name: entry[name] for name in MeasuredSetting.__slots__})
        resolved = content["resolved"][setting.model]
        costs = costs_of(options, resolved)
        limits = {name: resolved[name] for name in LIMITS}
        plain = simulated(setting, costs, limits)
        speeds = speeds_between(
            speeds_of(content["sweeps"].get(setting.model), costs, setting.model)
        )
        count = len(entry.get("runs", ()))
        guesses = [
            simulated(setting, costs, limits, true=AtSpeed(costs, {setting.model: speed}))
            for speed in speeds
        ] or [plain] * count
        place = {name: entry[name] for name in ("model", "policy", "load")}
        found = (
            compare(place, entry["runs"], guesses) if guesses else _of_means(place, entry, plain)
        )
        rows += [row | {"as_profiled": plain[row["figure"]]} for row in found]
    return rows


def _of_means(
    place: Mapping[str, str], entry: Mapping[str, Any], guess: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Rows of a setting of which only means over repetitions were kept, and the noise."""
    return [
        row_of(place, name, found["measured"], guess[name], found["noise"])
        | {"aim": AIMS[name], "repetitions": entry["repetitions"]}
        for name, found in entry["means"].items()
        if not np.isnan(guess[name])
    ]


def speeds_of(swept: Mapping[str, Any] | None, costs: ProfileCosts, model: str) -> list[Speed]:
    """How fast the machine was in each sweep, against its profile; nothing without sweeps."""
    if swept is None:
        return []
    batches, reference = pd.DataFrame(swept["batches"], columns=BATCH), reference_of(costs, model)
    return [
        against(speed_from(Totals(*totals), batches, costs, model), reference)
        for totals in swept["totals"]
    ]


def print_rows(rows: list[Any]) -> None:
    """The table."""
    table = Table("model", "policy", "load", "figure")
    table.title = "simulated against measured on vLLM, mean over repetitions"
    for name in ("measured", "simulated", "error", "noise", ""):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(row[name] for name in ("model", "policy", "load", "figure")),
            *(f"{row[name]:.4g}" for name in ("measured", "simulated")),
            *(f"{row['error']:+.1%}", f"{row['noise']:.1%}", word_for(row)),
        )
    Console(width=None if Console().is_terminal else 120).print(table)
    print(counts_text(rows))
    for name in AIMS:
        if any(row["figure"] == name for row in rows):
            print(f"{name}, over all settings: off by {bias_text(pooled_bias(rows, name))}")
        else:
            print(f"{name}: no run has the requests that this percentile needs")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add, models = parser.add_argument, ["tiny:100", "small:80", "m100:30"]
    add("--models", nargs="+", default=models, help="name:requests")
    add("--policies", nargs="+", default=POLICIES, help="files below scenarios/policy")
    add("--repeats", type=int, default=5)
    add("--profile", default="cpu_vllm", help="folder under harness/profiles")
    add("--gpu", default="CPU", help="the GPU of that profile")
    add("--again", type=Path, help="a stored file, simulated again; nothing is measured")
    add("--out", type=Path, help="a file, instead of fidelity_vllm/GPU.json")
    published.add_publish(parser)
    return parser.parse_args(arguments)


def stored(path: Path) -> dict[str, Any]:
    """What an earlier command wrote. ValueError, naming the file, for anything else."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name in ("engine", "machine", "settings", "sweeps", "resolved"):
        if name not in content:
            raise ValueError(f"{path} has no {name}: it is no file of this command")
    return content


def _content(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, now or before, and the rows beside what is simulated."""
    if options.again:
        content = stored(options.again)
    else:
        # What measures needs vLLM; to simulate what is stored does not.
        from harness.tools.fidelity.measuring import measured

        counts = (model.partition(":") for model in options.models)
        content = measured({name: int(count) for name, _, count in counts}, options)
    speeds = [
        speed
        for model, swept in content["sweeps"].items()
        for speed in speeds_of(swept, costs_of(options), model)
    ]
    if speeds:
        content["speed"] = speeds_text(speeds)
    return content | {"rows": compared(content, options)}


def main(arguments: list[str] | None = None) -> int:
    """Compare what the command line names; returns the exit status."""
    options = _options(arguments)
    if options.repeats < 2:
        print(f"--repeats={options.repeats}: noise needs at least 2", file=sys.stderr)
        return 2
    try:
        content = _content(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print_rows(content["rows"])
    if runs := [run for entry in content["settings"] for run in entry.get("runs", [])]:
        content["late"] = late_text([(run[LAG], run["ttft_s_mean"]) for run in runs])
        print(content["late"])
    folder = published.place("fidelity_vllm", publish=options.publish)
    path = options.out or folder / f"{options.gpu.lower()}.json"
    published.write(path, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
