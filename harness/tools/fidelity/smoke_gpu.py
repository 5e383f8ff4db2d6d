"""One GPU, end to end: `make smoke-gpu`. Exit status 3 where there is none.

Measures a 1B- and a 7B-class model of random weights, runs the smoke scenario on the GPU, and says
how near the simulator comes to it; results go to results/measured/GPU/. With `--rehearse` the very
same commands run with the smallest model on the CPU, in a temporary folder: as a GPU of no list.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.hydra_words import word
from harness.config.paths import PROFILES, ROOT
from harness.costs.local_hardware import called, measured_profile
from harness.costs.nvml import gpu_memory_bytes, gpu_name, open_nvml

NO_GPU = 3
MODELS = {"random-1b": 200, "random-7b": 120}  # requests of a fidelity run

Commands = Sequence[Sequence[str]]


def commands(
    gpu: str,
    profile: str,
    fidelity: Path,
    models: Mapping[str, int],
    *,
    calibrate: Sequence[str],
    smoke: Sequence[str],
    compare: Sequence[str] = (),
) -> Commands:
    """What is run, one after the other; `calibrate`, `smoke` and `compare` are further words.

    The folder `profile` is below harness/profiles unless absolute, `fidelity` the file of errors.
    """
    calibrated = ("-m", "harness.tools.calibrate", "--gpu", gpu, "--out", str(PROFILES / profile))
    hardware = (word("hardware.gpu", gpu), word("hardware.profile", profile))
    first = f"workload.model={next(iter(models))}"
    run = ("harness/run.py", "+scenario=smoke", first, *hardware, "name=smoke_gpu")
    compared = ("-m", "harness.tools.fidelity.real_engine", "--gpu", gpu)
    files = ("--profile", profile, "--out", str(fidelity))
    counts = [f"{name}:{count}" for name, count in models.items()]
    return [
        [sys.executable, *calibrated, *calibrate, "--model", *models],
        [sys.executable, *run, *smoke],
        [sys.executable, *compared, *files, *compare, "--models", *counts],
    ]


def on_gpu(gpu: str) -> Commands:
    """For a GPU of this machine, by the name that we call it."""
    return commands(
        gpu,
        measured_profile(gpu),
        ROOT / "results" / "measured" / gpu / "fidelity_vllm.json",
        MODELS,
        calibrate=("--kv-blocks", "0"),
        smoke=("engine.kv_blocks=null", "engine.block_tokens=null"),
    )


def rehearsal(folder: Path) -> Commands:
    """For the CPU, called by an unknown name; everything goes below `folder`."""
    short = ("--kv-blocks", "400", "--repeats", "2", "--most-requests", "4")
    flops, bytes_per_s = "--gpu-fp16-flops-per-s=1e11", "--gpu-memory-bytes-per-s=1e10"
    facts = ("--gpu-memory-bytes=8e9", flops, bytes_per_s, "--gpu-pcie-bytes-per-s=1e10")
    kept = (word("results", str(folder / "results")), "tracking=none", "workload.requests=8")
    return commands(
        "rehearsed",
        str(folder / "profile"),
        folder / "fidelity.json",
        {"tiny": 4},
        calibrate=(*short, *facts),
        smoke=(*kept, "matrix.policy=[vllm,srtf]", "matrix.seed=[0]"),
        compare=("--policies", "vllm", "--repeats", "2"),
    )


def run(these: Commands) -> int:
    """Run them; the first that fails ends it with its status."""
    for command in these:
        print(" ".join(command), flush=True)
        if status := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return status
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.smoke_gpu", description=__doc__
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, a few minutes")
    parser.add_argument("--look", action="store_true", help="only whether there is a GPU")
    options = parser.parse_args(arguments)
    if options.rehearse:
        with tempfile.TemporaryDirectory() as folder:
            return run(rehearsal(Path(folder)))
    nvml = open_nvml()
    name = gpu_name(nvml)
    if name is None:
        print("no GPU here: make smoke runs the same on the CPU", file=sys.stderr)
        return NO_GPU
    if options.look:
        return 0
    return run(on_gpu(called(name, gpu_memory_bytes(nvml))))


if __name__ == "__main__":
    sys.exit(main())
