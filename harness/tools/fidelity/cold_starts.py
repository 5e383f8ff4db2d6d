"""Seconds in which backends start: `python -m harness.tools.fidelity.cold_starts --image IMAGE`.

Containers of an image, and a vision transformer of random weights that is read from a file where
PyTorch is installed; beside each the seconds over those of a call of 1,000 prompt and 100 answer
tokens of Llama-2-7B on one A100-40G, alone, as the cost profile has them.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from harness.costs.model import PARTS, ProfileCosts
from harness.engines.containers import Containers
from harness.interface.entities import ServiceId
from harness.workloads.application_mix import batch_s

CALL = (1000, 100)
REPEATS = 5


def container_seconds(containers: Containers) -> dict[str, float]:
    """Median seconds to start a container, to run code in one, and to kill and remove it."""
    found: dict[str, list[float]] = {"container: start": [], "run": [], "kill and remove": []}
    for number in range(REPEATS):
        name = f"measured {number}"
        for what, step in (
            ("container: start", lambda name=name: containers.start(name)),
            ("run", lambda name=name: containers.run(name, "true")),
            ("kill and remove", lambda name=name: containers.stop(name)),
        ):
            found[what].append(_seconds(step))
    return {what: median(seconds) for what, seconds in found.items()}


def dnn_seconds() -> dict[str, float]:
    """Median seconds to read a module of 86 million parameters and to compute once with it.

    It has the shape of ViT-Base. Empty where PyTorch is not installed.
    """
    try:
        import torch
    except ImportError:
        return {}
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        path = Path(folder) / "module.pt"
        torch.save(module.state_dict(), path)

        def load() -> None:
            module.load_state_dict(torch.load(path, weights_only=True))
            module(torch.zeros(1, 197, 768))

        return {"DNN: load and compute once": median(_seconds(load) for _ in range(REPEATS))}


def _seconds(step: Callable[[], object]) -> float:
    started_s = time.monotonic()
    step()
    return time.monotonic() - started_s


def call_seconds() -> float:
    """Seconds of a call of 1,000 prompt and 100 answer tokens on a batch of its own."""
    costs = ProfileCosts(gpu="A100-40G-PCIe", profile_dir="roofline", memory_share=0.9, parts=PARTS)
    return batch_s(costs, ServiceId("Llama-2-7b-hf"), 1, [CALL])


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.cold_starts", description=__doc__
    )
    parser.add_argument("--image", default="python:3.10-slim", help="with sh, sleep and timeout")
    parser.add_argument("--url", help="of the docker daemon; as docker finds it if left out")
    options = parser.parse_args(arguments)
    try:
        containers = Containers(image=options.image, url=options.url)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        found = container_seconds(containers) | dnn_seconds()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        containers.close()
    alone_s = call_seconds()
    table = Table(title="measured here; a call: simulated, profile roofline")
    for column in ("what", "seconds", "over a call"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for what, seconds in found.items():
        table.add_row(what, f"{seconds:.3f}", f"{seconds / alone_s:.2f}x")
    table.add_row("a call of 1,000 and 100 tokens", f"{alone_s:.3f}", "1x")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
