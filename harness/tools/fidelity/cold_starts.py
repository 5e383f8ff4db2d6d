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
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
from rich.console import Console

from harness.costs.model import PARTS, ProfileCosts
from harness.engines.containers import Containers
from harness.interface.entities import ServiceId
from harness.runs.table import print_table
from harness.workloads.application_mix import batch_s

CALL = (1000, 100)
REPEATS = 5


def container_seconds(containers: Containers) -> dict[str, float]:
    """Median seconds to start a container, to run code in one, and to kill and remove it."""
    steps: dict[str, Callable[[str], object]] = {
        "container: start": containers.start,
        "run": lambda name: containers.run(name, "true"),
        "kill and remove": containers.stop,
    }
    found = pd.DataFrame(
        {what: _seconds(partial(step, f"measured {number}")) for what, step in steps.items()}
        for number in range(REPEATS)
    )
    return dict(found.median())


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


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.cold_starts", description=__doc__
    )
    parser.add_argument("--image", default="python:3.10-slim", help="with sh, sleep and timeout")
    parser.add_argument("--url", help="of the docker daemon; as docker finds it if left out")
    options = parser.parse_args(arguments)
    try:
        with closing(Containers(image=options.image, url=options.url)) as containers:
            found = container_seconds(containers) | dnn_seconds()
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    # Alone on one A100-40G.
    costs = ProfileCosts(gpu="A100-40G-PCIe", profile_dir="roofline", memory_share=0.9, parts=PARTS)
    alone_s = batch_s(costs, ServiceId("Llama-2-7b-hf"), 1, [CALL])
    seconds = pd.Series({**found, "a call of 1,000 and 100 tokens": alone_s})
    columns = {"seconds": seconds.map("{:.3f}".format)}
    columns["over a call"] = (seconds / alone_s).map("{:.2f}x".format)
    table = pd.DataFrame(columns).rename_axis("what")
    print_table(table, Console(), "measured here; a call: simulated, profile roofline")
    return 0


if __name__ == "__main__":
    sys.exit(main())
