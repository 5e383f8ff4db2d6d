"""One GPU, end to end: `make smoke-gpu`. Exit status 3 where there is none.

Runs the smoke scenario on the GPU, measures a 1B- and a 7B-class model of random weights, and how
near the simulator comes to them; results go to results/measured/GPU/.
"""

import subprocess
import sys

from harness.costs.local_hardware import known_gpu
from harness.costs.nvml import gpu_name, open_nvml
from harness.paths import ROOT

NO_GPU = 3
MODELS = {"random-1b": 200, "random-7b": 120}  # requests of a fidelity run


def commands(gpu: str) -> list[list[str]]:
    """What is run, one after the other."""
    profile = f"{gpu.lower()}_vllm"
    fidelity = ROOT / "results" / "measured" / gpu / "fidelity_vllm.json"
    models = [f"{name}:{count}" for name, count in MODELS.items()]
    out = f"harness/profiles/{profile}"
    calibrate = ["-m", "harness.calibrate", "--gpu", gpu, "--kv-blocks", "0", "--out", out]
    smoke = [
        "harness/run.py",
        "+scenario=smoke",
        "workload.model=random-1b",
        "engine.dtype=bfloat16",
        "engine.kv_blocks=null",
        "engine.block_tokens=null",
        "name=smoke_gpu",
    ]
    compare = ["-m", "harness.fidelity.real_engine", "--gpu", gpu, "--profile", profile]
    return [
        [sys.executable, *calibrate, "--model", *MODELS],
        [sys.executable, *smoke],
        [sys.executable, *compare, "--models", *models, "--out", str(fidelity)],
    ]


def main() -> int:
    """Run them; the first that fails ends it with its status."""
    name = gpu_name(open_nvml())
    if name is None:
        print("no GPU here: make smoke runs the same on the CPU", file=sys.stderr)
        return NO_GPU
    gpu = known_gpu(name)
    if gpu is None:
        print(f"{name} is not in harness/profiles/gpus.json", file=sys.stderr)
        return 2
    for command in commands(gpu):
        print(" ".join(command), flush=True)
        if status := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
