"""What deciding by a policy costs inside real vLLM: our scheduler against vLLM's own, same batches.

`python -m harness.tools.benchmarks.scheduler_overhead`, where vLLM is installed. Two
engines in one process decode the same requests, first come first served, in turns of a few steps,
so that whatever else the machine does meets both.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from harness.config.paths import ROOT
from harness.runs import published
from harness.runs.provenance import machine
from harness.tools.benchmarks.reference_load import printed, vllm_policy

MODEL = ROOT / "scenarios" / "models" / "tiny"
RUNNING = 256
PROMPT_TOKENS, OUTPUT_TOKENS = 16, 400
TURN_STEPS, TURNS, WARM_UP_STEPS = 10, 30, 20
OURS = "harness.engines.vllm.scheduler.PolicyScheduler"

_COMPARE = "from harness.tools.benchmarks import scheduler_overhead as it; it.print_compared()"


@dataclass
class _Stepped:
    """An engine, and the seconds of its steps: all of them, and what scheduling takes of it."""

    engine: Any
    step_s: list[float] = field(default_factory=list)
    schedule_s: list[float] = field(default_factory=list)
    _asked_s: float = 0.0

    def __post_init__(self) -> None:
        """Time the two calls of the scheduler in every step."""
        scheduler = self.engine.engine_core.engine_core.scheduler
        for name in ("schedule", "update_from_output"):
            setattr(scheduler, name, partial(self._timed, getattr(scheduler, name)))

    def _timed(self, call: Any, *args: Any) -> Any:
        started_s = time.perf_counter()
        result = call(*args)
        self._asked_s += time.perf_counter() - started_s
        return result

    def turn(self, steps: int) -> None:
        """Some steps, in which no request may finish."""
        for _ in range(steps):
            self._asked_s, started_s = 0.0, time.perf_counter()
            self.engine.step()
            self.step_s.append(time.perf_counter() - started_s)
            self.schedule_s.append(self._asked_s)


def measure() -> dict[str, float]:
    """Figures of this module; none where vLLM is not installed."""
    if find_spec("vllm") is None:
        return {}
    # Set before Python starts: threads that wait for each other would be what is measured.
    settings = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    figures: dict[str, float] = printed(["-c", _COMPARE], VLLM_LOGGING_LEVEL="ERROR", **settings)
    return figures


def print_compared() -> None:
    """The two engines in this process, in turns."""
    own, ours = _engine(None), _engine(OURS)
    for engine in (own, ours):
        engine.turn(WARM_UP_STEPS)
        engine.step_s.clear()
        engine.schedule_s.clear()
    gc.disable()
    for turn in range(TURNS):
        for engine in (own, ours) if turn % 2 else (ours, own):
            engine.turn(TURN_STEPS)
    own_s, ours_s = statistics.median(own.step_s), statistics.median(ours.step_s)
    own_asked_s, asked_s = statistics.median(own.schedule_s), statistics.median(ours.schedule_s)
    figures = {
        "vllm_own_step_s": own_s,
        "vllm_policy_step_s": ours_s,
        "vllm_policy_step_ratio": ours_s / own_s,
        "vllm_policy_step_ratio_of_minima": min(ours.step_s) / min(own.step_s),
        "vllm_own_scheduling_s": own_asked_s,
        "vllm_policy_scheduling_s": asked_s,
        "vllm_policy_added_s": asked_s - own_asked_s,
        "vllm_policy_added_s_of_minima": min(ours.schedule_s) - min(own.schedule_s),
    }
    print(json.dumps(figures))


def _engine(scheduler: str | None) -> _Stepped:
    """An engine of the tiny model with all its requests decoding."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    from harness.engines.vllm.group import without_lazy_library

    config = EngineArgs(
        model=str(MODEL),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=RUNNING,
        max_num_batched_tokens=2048,
        block_size=32,
        num_gpu_blocks_override=RUNNING * 16,
        kv_cache_memory_bytes=1 << 30,
        enable_prefix_caching=False,
        async_scheduling=False,
        scheduler_cls=scheduler,
        disable_log_stats=True,
    ).create_engine_config()
    with without_lazy_library():
        engine = LLMEngine(
            vllm_config=config,
            executor_class=Executor.get_class(config),
            log_stats=False,
            multiprocess_mode=False,
        )
    if scheduler is not None:
        engine.engine_core.engine_core.scheduler.attach(policy=vllm_policy())
    parameters = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, detokenize=False)
    for number in range(RUNNING):
        prompt = [3 + (number + place) % 900 for place in range(PROMPT_TOKENS)]
        engine.add_request(f"r{number}", {"prompt_token_ids": prompt}, parameters)
    return _Stepped(engine)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; the exit status."""
    parser = argparse.ArgumentParser(description="What a policy adds to vLLM's own scheduling.")
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    figures = measure()
    if not figures:
        print("error: this benchmark needs vLLM: make setup-vllm", file=sys.stderr)
        return 2
    content = {**{k: float(f"{v:.4g}") for k, v in figures.items()}, "machine": machine()}
    print(json.dumps(figures, indent=1))
    folder = published.place("bench", publish=given.publish)
    published.write(folder / "scheduler_overhead.json", json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
