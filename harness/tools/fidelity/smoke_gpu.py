"""One GPU, end to end: `make smoke-gpu`. Exit status 3 where there is none.

Measures a 1B- and a 7B-class model of random weights, runs the smoke scenario on the GPU, and says
how near the simulator comes to it; results go to results/measured/GPU/. With `--rehearse` the very
same commands run with the smallest model on the CPU, in a temporary folder: as a GPU of no list.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.config.hydra_words import word
from harness.config.paths import PROFILES, ROOT
from harness.costs.local_hardware import called, measured_profile
from harness.costs.nvml import gpu_memory_bytes, gpu_name, open_nvml

NO_GPU = 3
MODELS = {"random-1b": 200, "random-7b": 120}  # requests of a fidelity run


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What differs between a GPU and a rehearsal."""

    gpu: str
    profile: str  # folder, below harness/profiles unless absolute
    fidelity: Path
    models: Mapping[str, int]
    calibrate: tuple[str, ...] = ("--kv-blocks", "0")
    smoke: tuple[str, ...] = ("engine.kv_blocks=null", "engine.block_tokens=null")
    compare: tuple[str, ...] = ()


def on_gpu(gpu: str) -> Options:
    """For a GPU of this machine, by the name that we call it."""
    fidelity = ROOT / "results" / "measured" / gpu / "fidelity_vllm.json"
    return Options(gpu=gpu, profile=measured_profile(gpu), fidelity=fidelity, models=MODELS)


def rehearsal(folder: Path) -> Options:
    """For the CPU, called by an unknown name; everything goes below `folder`."""
    facts = {
        "memory-bytes": 8e9,
        "fp16-flops-per-s": 1e11,
        "memory-bytes-per-s": 1e10,
        "pcie-bytes-per-s": 1e10,
    }
    given = [f"--gpu-{name}={value}" for name, value in facts.items()]
    short = ("--kv-blocks", "400", "--repeats", "2", "--most-requests", "4")
    kept = (word("results", str(folder / "results")), "tracking=none", "workload.requests=8")
    return Options(
        gpu="rehearsed",
        profile=str(folder / "profile"),
        fidelity=folder / "fidelity.json",
        models={"tiny": 4},
        calibrate=(*short, *given),
        smoke=(*kept, "matrix.policy=[vllm,srtf]", "matrix.seed=[0]"),
        compare=("--policies", "vllm", "--repeats", "2"),
    )


def commands(options: Options) -> list[list[str]]:
    """What is run, one after the other."""
    models = [f"{name}:{count}" for name, count in options.models.items()]
    calibrate = [
        "-m",
        "harness.tools.calibrate",
        "--gpu",
        options.gpu,
        "--out",
        str(PROFILES / options.profile),
    ]
    smoke = [
        "harness/run.py",
        "+scenario=smoke",
        f"workload.model={next(iter(options.models))}",
        word("hardware.gpu", options.gpu),
        word("hardware.profile", options.profile),
        "name=smoke_gpu",
    ]
    compare = ["-m", "harness.tools.fidelity.real_engine", "--gpu", options.gpu]
    compare += ["--profile", options.profile, "--out", str(options.fidelity)]
    return [
        [sys.executable, *calibrate, *options.calibrate, "--model", *options.models],
        [sys.executable, *smoke, *options.smoke],
        [sys.executable, *compare, *options.compare, "--models", *models],
    ]


def run(options: Options) -> int:
    """Run them; the first that fails ends it with its status."""
    for command in commands(options):
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
