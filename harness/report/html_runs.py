"""The report's part of the runs on this machine, down to where the time of a request went."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.hydra_words import word
from harness.results import scenarios
from harness.runs.compare import CHOSEN, SEED, scenario_runs
from harness.runs.figures import header_of
from harness.runs.record import Row, config_of, read_rows
from harness.runs.table import basis
from harness.why import PARTS, parts

RUNS, OF_SCENARIO, REQUESTS = 12, 3, 100
"""Runs, at most so many of a scenario, and of each the slowest requests."""
BYTES = 1_500_000
"""Of all of them as JSON; older runs are left out."""
EXAMPLE = "example"
RATE = "workload.arrivals.rate_per_s"
SHOWN = (
    *("requests", "jct_s_mean", "jct_s_p99", "ttft_s_mean", "ttft_s_p99", "tpot_s_mean"),
    *("act_s_mean", "slo_attainment", "goodput_per_s", "gpu_idle_s"),
)
"""Figures of a run."""
FACTS = ("arrival_s", "prompt_tokens", "output_tokens", "preemptions")
"""What is said of a request beside its parts."""

RunFacts = dict[str, Any]


def runs_part(root: Path) -> list[RunFacts]:
    """The newest whole runs below results/; an example is simulated where none is.

    ValueError where the example fails.
    """
    folders = newest(root / "results")
    if not folders:
        simulate_example(root / "results")
        folders = newest(root / "results")
    found: list[RunFacts] = []
    size = 0
    for folder in folders:
        try:
            run = run_of(folder)
        except KeyError as missing:
            print(f"{folder} is left out: it has no {missing}", file=sys.stderr)
            continue
        size += len(json.dumps(run))
        if found and size > BYTES:
            break
        found.append(run)
    return found


def newest(results: Path) -> list[Path]:
    """Folders of the newest runs, of a scenario each of another policy or engine."""
    every = [run for folder in scenarios(results, []) for run in scenario_runs(folder)]
    whole = [run for run in every if (run / "summary.json").is_file()]
    whole.sort(key=lambda run: (run / "summary.json").stat().st_mtime, reverse=True)
    kinds: dict[str, set[tuple[object, ...]]] = {}
    found: list[Path] = []
    for run in whole:
        if len(found) == RUNS:
            break
        seen = kinds.setdefault(run.parent.name, set())
        if len(seen) < OF_SCENARIO:
            chosen = config_of(run).get("chosen") or {}
            kind = tuple(chosen.get(key) for key in ("engine", "system", "policy"))
            found += [run] * (kind not in seen)
            seen.add(kind)
    return found


def simulate_example(results: Path) -> None:
    """Run a few chats on the simulator: seconds. ValueError where that fails."""
    script = Path(__file__).parents[1] / "run.py"
    kept = [f"name={EXAMPLE}", word("results", str(results))]
    words = [*kept, "workload.requests=60", "tracking=none"]
    command = [sys.executable, str(script), *words, "workers=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ValueError(f"{' '.join(command)} failed: {last[0]}")


def run_of(folder: Path) -> RunFacts:
    """A run: what it was, its figures, and the slowest of its finished requests.

    A request is its number, `FACTS`, the number of its service, and its `PARTS` in seconds.
    """
    row = read_rows(folder.parent, only={folder.name})[folder.name]
    requests = pd.read_parquet(folder / "requests.parquet").set_index("request", drop=False)
    every = parts(requests).dropna()
    services = requests.loc[every.index, "service"].astype(str)
    medians = every.groupby(services).median()
    slowest = every.sum(axis=1).nlargest(REQUESTS).index
    facts = requests.loc[slowest, list(FACTS)].astype(float).round(3)
    places = medians.index.get_indexer(services.loc[slowest].to_numpy())
    seconds = every.loc[slowest, list(PARTS)].round(4)
    columns = (facts.to_numpy().tolist(), places.tolist(), seconds.to_numpy().tolist())
    return {
        "name": f"{folder.parent.name}/{folder.name}",
        "setting": _setting(row),
        "engine": basis(pd.DataFrame([row])),
        "started": str(row["started"])[:19].replace("T", " "),
        "config": (folder / "config.yaml").read_text(encoding="utf-8"),
        "figures": [
            [header_of(name), value]
            for name in SHOWN
            if isinstance(value := row.get(name), int | float)
        ],
        "count": len(every),
        "services": list(medians.index),
        "medians": medians[list(PARTS)].round(4).to_numpy().tolist(),
        "requests": [
            [request, *known, place, *split]
            for request, known, place, split in zip(slowest.tolist(), *columns, strict=True)
        ],
    }


def _setting(row: Row) -> str:
    """The engine of a run, what it was composed of, its rate where it has one, and its seed."""
    said = [f"{row['engine']}:"]
    for name, value in row.items():
        key = name.removeprefix(CHOSEN)
        is_said = name.startswith(CHOSEN) and key not in ("scenario", "engine")
        if is_said and value not in (None, "None", "none"):
            said.append(f"{key}={value}")
    if isinstance(rate := row.get(f"config.{RATE}"), float | int):
        said.append(f"{RATE}={rate:.4g}")
    return " ".join([*said, f"seed={row.get(SEED)}"])
