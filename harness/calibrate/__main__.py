"""Measures a model on the vLLM at hand: `python -m harness.calibrate --model tiny`.

Runs a designed sweep several times over, in turn, after a warm-up; the least seconds of each
iteration over the repetitions are fitted, since what a shared machine adds is never negative. How
much slower a typical repetition was than its least is kept as `slowdown`, and multiplied in.
"""

import argparse
import json
import sys
from pathlib import Path

from harness.calibrate.stored import profile, residuals
from harness.calibrate.sweep import ARRIVALS, REQUESTS, Sweep, measure
from harness.config.paths import PROFILES
from harness.costs.asked_gpu import GIVEN, facts_of, keep_facts
from harness.costs.model_facts import model_facts
from harness.costs.model_names import is_config
from harness.costs.nvml import open_nvml
from harness.costs.profiles import CALIBRATION
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.interface.entities import Cluster, GpuId, Group, GroupId, Service, ServiceId


def calibrate(model: str, options: argparse.Namespace, engine: Vllm) -> Path:
    """Measure one model and write its profile and residual plot below `options.out`.

    Whatever was not measured follows the roofline that all folders share, or one beside the profile
    where blocks of this engine have another size.
    """
    out: Path = options.out
    facts = model_facts(model)
    service = Service(ServiceId(facts.name), facts.kv_bytes_per_token, facts.max_context_tokens)
    group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
    stem = Path(facts.name).parent.name if is_config(facts.name) else model
    (settings,) = engine.settings([service], group)
    sweep = Sweep(settings, service)
    try:
        samples, seconds = measure(sweep, options.repeats, options.most_requests)
    finally:
        sweep.stop()
    content = profile(facts.name, options.gpu, samples, seconds, sweep)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{stem}.json"
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    roofline = json.loads((PROFILES / "roofline" / CALIBRATION).read_text(encoding="utf-8"))
    if roofline["block_tokens"] != sweep.block_tokens or (out / CALIBRATION).is_file():
        roofline["block_tokens"] = sweep.block_tokens
        text = json.dumps(roofline, sort_keys=True, indent=1) + "\n"
        (out / CALIBRATION).write_text(text, encoding="utf-8")
    residuals(samples, seconds, f"{stem}, {engine_name()}").savefig(out / f"{stem}.png", dpi=110)
    return path


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.calibrate", description=__doc__)
    parser.add_argument("--model", nargs="+", default=["tiny"], help="names, or configs")
    parser.add_argument("--gpu", default="CPU", help="what it runs on; in gpus.json or any name")
    for fact in GIVEN:
        parser.add_argument(f"--gpu-{fact.replace('_', '-')}", type=float)
    parser.add_argument("--out", type=Path, default=PROFILES / "cpu_vllm", help="profile folder")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kv-blocks", type=int, default=400, help="0 leaves it to vLLM")
    parser.add_argument("--most-requests", type=int, default=REQUESTS[-1], help="at once")
    return parser.parse_args(arguments)


def _engine(kv_blocks: int | None) -> Vllm:
    """vLLM as it is measured; on a CPU without compiling."""
    is_cpu = not has_gpus()
    return Vllm(
        cluster=Cluster((GpuId(0),), (), 0),
        seed=0,
        models={},
        load_format="dummy",
        dtype=None,
        max_num_seqs=256,
        max_num_batched_tokens=ARRIVALS[0][0],
        kv_blocks=kv_blocks,
        block_tokens=32 if is_cpu else None,
        prefix_caching=False,
        eager=is_cpu,
        keep_answers=False,
        keep_loaded=False,
        ray=False,
        on_loss="fail",
        texts=None,
        forces_lengths=True,
        loads_first=True,
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure what the command line names; returns the exit status."""
    options = _options(arguments)
    engine = _engine(options.kv_blocks or None)
    try:
        said = {fact: getattr(options, f"gpu_{fact}") for fact in GIVEN}
        facts = facts_of(options.gpu, said, open_nvml())
        for model in options.model:
            print(f"wrote {calibrate(model, options, engine)}")
        keep_facts(options.out, facts)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
