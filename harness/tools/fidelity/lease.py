"""Fifteen minutes of a GPU: `python -m harness.tools.fidelity.lease MODEL --out FOLDER`.

One process, without Ray, measures one model step by step, the most valuable step first, and says
of each how it was simulated: a raw sweep, fidelity runs with every repetition kept, scenarios of
`lease.yaml`, and vLLM by its own scheduler. Every run is stored before the next one begins, no step
begins after `--seconds`, and one that fails is a line. With `--rehearse` everything is small, for a
CPU.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.costs.model_facts import model_facts
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.interface.entities import ServiceId
from harness.runs.provenance import machine
from harness.tools.calibrate.model import engine
from harness.tools.fidelity import lease_steps as steps
from harness.tools.fidelity.lease_steps import Lease
from harness.tools.fidelity.lease_store import FigureRow, LeaseStore
from harness.tools.fidelity.settings import costs_of

LeaseStep = Callable[[Lease], list[FigureRow]]
BY_NAME: dict[str, LeaseStep] = {
    "sweep": steps.sweep,
    "fidelity": steps.fidelity,
    **{name: partial(steps.scenario, step=name) for name in steps.STEPS},
    "stock": steps.stock,
}
KV_BLOCKS = 400  # on a CPU; a GPU has what vLLM finds
REHEARSED = {"requests": 3, "repeats": 1, "sweep_s": 1.0, "most_requests": 2}


def lease_of(options: argparse.Namespace) -> Lease:
    """What the command line asks for. ValueError for what cannot be, OSError for a folder."""
    for name in ("requests", "repeats", "sweep_s", "most_requests", "seconds"):
        if not getattr(options, name) > 0:
            raise ValueError(f"--{name.replace('_', '-')}={getattr(options, name)} must be above 0")
    facts = model_facts(options.model)
    costs = costs_of(options)
    costs.require(facts.name)
    costs.table(ServiceId(facts.name), 1)
    about = {"model": facts.name, "gpu": options.gpu, "profile": options.profile}
    sizes = {name: getattr(options, name) for name in REHEARSED}
    return Lease(
        facts=facts,
        engine=engine(None if has_gpus() else KV_BLOCKS),
        costs=costs,
        store=LeaseStore(
            options.out, options.model, about | {"engine": engine_name(), "machine": machine()}
        ),
        rehearses=options.rehearse,
        **sizes | (REHEARSED if options.rehearse else {}),
    )


def run(lease: Lease, names: list[str], seconds: float) -> dict[str, list[FigureRow]]:
    """The steps, one after the other; the rows of those that have not failed."""
    found: dict[str, list[FigureRow]] = {}
    for name in names:
        began_s = time.monotonic()
        if lease.spent_s > seconds:
            lease.say(f"{name}: left out, {seconds:g} s are over")
            continue
        failed, rows = "", list[FigureRow]()
        try:
            rows = found[name] = BY_NAME[name](lease)
        except Exception as error:  # of any kind: the next step may work
            failed = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            lease.say(f"{name}: failed: {failed}")
        lease.store.end(name, time.monotonic() - began_s, rows, failed)
    return found


def print_rows(found: dict[str, list[FigureRow]]) -> None:
    """A line per figure, means over repetitions or seeds."""
    table = Table("step", "setting", "figure", title="measured beside simulated, means", box=None)
    for name in ("runs", "measured", "simulated", "error"):
        table.add_column(name, justify="right")
    for step, rows in found.items():
        for row in rows:
            means = (f"{sum(it) / len(it):.4g}" for it in (row.measured, row.simulated))
            counts = str(len(row.measured))
            table.add_row(step, row.setting, row.figure, counts, *means, f"{row.error:+.1%}")
    Console(width=None if Console().is_terminal else 120).print(table)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.lease", description=__doc__.partition("\n")[0]
    )
    add = parser.add_argument
    add("model", help="a folder of scenarios/models")
    add("--out", type=Path, required=True, help="folder of MODEL.tar and MODEL.json")
    add("--profile", default="cpu_vllm", help="folder under harness/profiles, for simulated runs")
    add("--gpu", default="CPU", help="the GPU of that profile")
    add("--steps", nargs="+", choices=BY_NAME, default=list(BY_NAME), metavar="STEP")
    add("--seconds", type=float, default=300.0, help="no step begins later")
    add("--sweep-s", type=float, default=60.0, help="seconds of the sweep, about")
    add("--requests", type=int, default=60, help="of a run of fidelity and stock")
    add("--repeats", type=int, default=3, help="repetitions of sweep, fidelity and stock")
    add("--most-requests", type=int, default=128, help="requests of a run of the sweep")
    add("--rehearse", action="store_true", help="everything small, for a CPU")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure what the command line names; returns the exit status, 1 where a step has failed."""
    options = _options(arguments)
    try:
        lease = lease_of(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    lease.say(engine_name())
    found = run(lease, options.steps, options.seconds)
    lease.unload()
    print_rows(found)
    return 0 if len(found) == len(options.steps) else 1


if __name__ == "__main__":
    sys.exit(main())
