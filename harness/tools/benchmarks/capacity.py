"""What a machine can serve: `python -m harness.tools.benchmarks.capacity SCENARIO`.

The scenario serves backlogs: requests that are all there at once. Capacity is their number over the
seconds from the first iteration to the last answer, averaged over seeds, for every setting of the
scenario. Loads (`harness.workloads.load`) are fractions of it. Writes
harness/profiles/capacity/SCENARIO.json.
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

from harness.config.hydra_words import word
from harness.config.paths import ROOT
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
    texts = [json.dumps(_setting(row)) for row in rows.to_dict("records")]
    rates = (rows["requests"] / (rows["inference_s"] - rows["load_s"])).groupby(texts)
    return {
        "about": f"{int(rows['requests'].min())} requests at once",
        "kind": "simulated",
        "source": f"python -m harness.tools.benchmarks.capacity {scenario}",
        "seeds": int(rates.count().min()),
        "rows": [
            {"setting": json.loads(str(text)), "requests_per_s": float(f"{rate:.5g}")}
            for text, rate in rates.mean().items()
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit status."""
    parser = argparse.ArgumentParser(description="What a machine can serve of a backlog.")
    parser.add_argument("scenario", help="a file of scenarios/scenario, without .yaml")
    scenario = parser.parse_args(arguments).scenario
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "harness/run.py", f"+scenario={scenario}", "tracking=none"]
        if status := subprocess.run([*command, word("results", folder)], cwd=ROOT).returncode:
            return status
        try:
            content = capacities(read_summaries(Path(folder) / scenario), scenario)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    table = CAPACITIES / f"{scenario}.json"
    table.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"Wrote {len(content['rows'])} capacities to {table}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
