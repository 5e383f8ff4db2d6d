"""What first come first served can serve: `python -m harness.benchmarks.capacity SCENARIO`.

The scenario serves backlogs: requests that are all there at once. Capacity is their number over the
seconds from the first iteration to the last answer, averaged over seeds, for every setting of the
scenario. Loads (`harness.workloads.load`) are fractions of it. Writes
harness/profiles/capacity.json, or with --check says whether it differs from what is there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.paths import ROOT
from harness.runs.record import read_summaries
from harness.workloads.load import CAPACITIES

SETTING = {
    "gpu": "config.hardware.gpu",
    "profile": "config.hardware.profile",
    "model": "config.workload.model",
    "max_output_tokens": "config.workload.max_output_tokens",
    "lengths": "config.workload.lengths.table",
    "part": "config.workload.lengths.part",
    "outputs": "config.workload.lengths.outputs",
    "rule": "config.policy.rule._target_",
    "max_num_seqs": "config.policy.rule.max_num_seqs",
    "refills": "config.policy.rule.refills",
    "max_num_batched_tokens": "config.policy.rule.max_num_batched_tokens",
    "kv_bytes": "config.hardware.kv_bytes",
    "block_tokens": "config.hardware.block_tokens",
}
"""What a capacity belongs to, and the column of a run that says it."""


def capacities(rows: pd.DataFrame, scenario: str) -> dict[str, Any]:
    """Content of the table, from the runs of a scenario of backlogs.

    Raises ValueError where requests are not all there at once.
    """
    arrivals = sorted(set(rows["config.workload.arrivals._target_"].astype(str)))
    if arrivals != ["harness.workloads.arrivals.AtOnce"]:
        raise ValueError(f"{scenario} serves no backlogs: its requests come by {arrivals[0]}")
    served = rows["requests"] / (rows["inference_s"] - rows["load_s"])
    known = [_setting(row) for row in rows.to_dict("records")]
    texts = [json.dumps(setting) for setting in known]
    found = {
        text: [rate for one, rate in zip(texts, served, strict=True) if one == text]
        for text in sorted(set(texts))
    }
    return {
        "about": f"{int(rows['requests'].min())} requests at once, first come first served",
        "kind": "simulated",
        "source": f"python -m harness.benchmarks.capacity {scenario}",
        "seeds": min(map(len, found.values())),
        "rows": [
            {
                "setting": json.loads(text),
                "requests_per_s": float(f"{sum(rates) / len(rates):.5g}"),
            }
            for text, rates in found.items()
        ],
    }


def _setting(row: dict[Any, Any]) -> dict[str, object]:
    """What its capacity belongs to; None for what a run's configuration does not have."""
    found = {name: row.get(column) for name, column in SETTING.items()}
    plain = {name: None if value != value else value for name, value in found.items()}
    if plain["max_num_batched_tokens"] is None:  # a rule without a budget is held to the engine's
        plain["max_num_batched_tokens"] = row.get("config.engine.max_num_batched_tokens")
    for name in ("max_num_batched_tokens", "kv_bytes", "block_tokens"):
        if isinstance(value := plain[name], float):  # a column of whole numbers with gaps
            plain[name] = int(value)
    return plain


def measured(scenario: str, results: Path) -> dict[str, Any]:
    """Run the scenario into a folder, but for what is there; the table."""
    command = [sys.executable, str(ROOT / "harness" / "run.py"), f"+scenario={scenario}"]
    command += [f"results={results.resolve()}", "tracking=none"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise ValueError(f"{scenario} was not run to its end")
    return capacities(read_summaries(results / scenario), scenario)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write or compare; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.benchmarks.capacity",
        description="Measure what first come first served can serve of a backlog.",
    )
    parser.add_argument("scenario", help="a file of scenarios/scenario, without .yaml")
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            content = measured(given.scenario, Path(folder))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = json.dumps(content, indent=1) + "\n"
    if not given.check:
        CAPACITIES.write_text(text, encoding="utf-8")
        print(f"Wrote {len(content['rows'])} capacities to {CAPACITIES}.")
        return 0
    same = CAPACITIES.is_file() and CAPACITIES.read_text(encoding="utf-8") == text
    print(f"{CAPACITIES.name} {'is' if same else 'differs from'} what {given.scenario} gives.")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
