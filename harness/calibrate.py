"""Measures a model on the vLLM at hand: `python -m harness.calibrate --model tiny`.

Runs a designed sweep several times over, in turn, after a warm-up; the least seconds of each
iteration over the repetitions are fitted, since what a shared machine adds is never negative. How
much slower a typical repetition was than its least is kept as `slowdown`, and multiplied in.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import nnls

from baselines.fcfs import Fcfs
from harness.costs.models import PROFILES, model_facts
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.group import (
    EngineSettings,
    Submission,
    VllmGroup,
    engine_name,
    has_gpus,
    new_engine,
)
from harness.engines.vllm.ray import RayGroup, start_ray
from harness.engines.vllm.step import Iteration
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import (
    AppId,
    Cluster,
    GpuId,
    Group,
    GroupId,
    Request,
    RequestId,
    Service,
    ServiceId,
    TenantId,
)

Floats = NDArray[np.float64]

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests
TOKEN_KNOTS = (0, 32, 128, 512, 1024, 2048)  # of prompts in a batch
# Requests that run together, median tokens of their prompts, tokens of a batch, iterations between
# two arrivals: all at once at a budget that takes several prompts and at one that cuts them into
# chunks, and one after the other, so that a prompt meets the decodes of the others.
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
PROMPTS = (16, 80, 240)
ARRIVALS = ((2048, 0), (160, 0), (2048, 2))
SPREAD = 0.7  # sigma of the logarithm of prompt lengths: unequal ones cost more
LONGEST = 700
ANSWER_TOKENS = 12
LEAST_REPEATS, MOST_S = 2, 480.0
PARTS = ("forward", "prepare", "other")


@dataclass(frozen=True, slots=True)
class Sample:
    """One iteration: what it computed, and its seconds by part."""

    prompts: int
    prompt_tokens: int
    attended: float
    decodes: int
    context_tokens: int
    longest_tokens: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Designed:
    """One run of the sweep: prompts in tokens, the budget of a batch, iterations per arrival."""

    prompts: tuple[int, ...]
    budget: int
    gap: int


def design(most_tokens: int) -> list[Designed]:
    """Every run of the sweep whose KV fits."""
    rng = np.random.default_rng(0)
    runs = []
    for budget, gap in ARRIVALS:
        for requests in REQUESTS:
            for median in PROMPTS:
                drawn = median * np.exp(SPREAD * rng.standard_normal(requests))
                prompts = tuple(np.rint(drawn).astype(int).clip(1, LONGEST).tolist())
                if sum(prompts) + 2 * ANSWER_TOKENS * requests <= most_tokens:
                    runs.append(Designed(prompts, budget, gap))
    return runs


class Sweep:
    """One engine that the designed runs go through, again and again."""

    def __init__(self, settings: EngineSettings, service: Service) -> None:
        """Load the model; `load_s` is how long that takes in a process of its own."""
        self._service = service
        self._group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
        self.load_s = load_seconds(settings, self._group, service)
        self._served = VllmGroup(new_engine(settings), False, settings)
        self.kv_blocks = self._served.kv_blocks
        self.block_tokens = self._served.block_tokens
        self._next = 0

    def run(self, designed: Designed) -> list[Sample]:
        """The iterations of one run; answers differ in length, so that batches shrink."""
        policy = Fcfs(rule=_rule(designed.budget))
        self._served.use(policy, group=self._group, service=self._service)
        ids = range(self._next, self._next + len(designed.prompts))
        self._next += len(ids)
        waiting = [
            self._submission(i, prompt, ANSWER_TOKENS + (i - ids[0]) % ANSWER_TOKENS)
            for i, prompt in zip(ids, designed.prompts, strict=True)
        ]
        at_once = 1 if designed.gap else len(waiting)
        iterations: list[Iteration] = []
        # When each iteration began to cost: taking a request in is part of the one that serves it,
        # but not for requests that wait for later ones.
        began_s: list[float] = []
        while waiting or self._served.has_work:
            before_s = time.monotonic()
            if waiting and len(iterations) % max(1, designed.gap) == 0:
                self._served.submit(waiting[:at_once])
                waiting = waiting[at_once:]
            began_s.append(before_s if designed.gap else time.monotonic())
            self._served.step()
            iterations.extend(self._served.report().iterations)
        kv = dict.fromkeys(ids, 0)
        ends_s = [*began_s[1:], iterations[-1].end_s]
        return [
            _sample(iteration, kv, begin_s, end_s)
            for iteration, begin_s, end_s in zip(iterations, began_s, ends_s, strict=True)
        ]

    def _submission(self, number: int, prompt: int, length: int) -> Submission:
        facts = Request(
            RequestId(number),
            self._service.id,
            AppId(number),
            TenantId(""),
            float(number),
            prompt,
            2 * ANSWER_TOKENS,
        )
        return Submission(facts, [3 + (number * 7 + j) % 900 for j in range(prompt)], length)

    def stop(self) -> None:
        """Free the engine."""
        self._served.stop()


def load_seconds(settings: EngineSettings, group: Group, service: Service) -> float:
    """Seconds from asking for a group until its process has loaded its engine."""
    owns_ray = start_ray(group.tensor_parallel)
    try:
        started_s = time.monotonic()
        served = RayGroup.start(
            settings,
            group=group,
            service=service,
            policy=Fcfs(rule=_rule(settings.max_num_batched_tokens)),
            keep_answers=False,
            on_gpus=has_gpus(),
        )
        served.wait()
        seconds = time.monotonic() - started_s
        served.stop()
    finally:
        if owns_ray:
            ray.shutdown()
    return seconds


def _rule(budget: int) -> ContinuousBatching:
    return ContinuousBatching(
        chunked_prefill=True,
        pads_prompts=False,
        max_num_seqs=min(256, budget),
        max_num_batched_tokens=budget,
        max_padding_tokens=0,
        watermark=0.0,
    )


def _sample(iteration: Iteration, kv: dict[int, int], began_s: float, ended_s: float) -> Sample:
    """What an iteration computed; `kv` follows the requests along."""
    chunks, contexts = [], []
    for request, tokens in iteration.batch.tokens.items():
        held = kv[int(request)]
        if request in iteration.prompts:
            chunks.append((held, tokens))
        else:
            contexts.append(held + 1)
        kv[int(request)] = held + tokens
    return Sample(
        len(chunks),
        sum(n for _, n in chunks),
        sum(n * (2.0 * (held + n) - n) for held, n in chunks),
        len(contexts),
        sum(contexts),
        max(contexts, default=0),
        (
            iteration.computed_s - iteration.scheduled_s,
            iteration.scheduled_s - began_s,
            ended_s - iteration.computed_s,
        ),
    )


def knots_of(samples: Sequence[Sample]) -> tuple[int, ...]:
    """Those of `KNOTS` that were reached; beyond the last one its slope goes on."""
    most = max(sample.decodes for sample in samples)
    return tuple(knot for knot in KNOTS if knot <= most)


def features(samples: Sequence[Sample], knots: tuple[int, ...]) -> Floats:
    """Columns of the fit: one, any prompt, more prompts, tokens, attended, decodes, context.

    Tokens and decodes enter as ramps between knots. All batches share the first column, so that
    one of prompts and decodes pays it once.
    """
    rows = [(1.0, min(1, s.prompts), max(0, s.prompts - 1), s.attended) for s in samples]
    tokens = _ramps([s.prompt_tokens for s in samples], TOKEN_KNOTS)
    decodes = _ramps([s.decodes for s in samples], knots)
    context = np.array([[s.context_tokens] for s in samples], np.float64)
    return np.hstack([np.array(rows, np.float64), tokens, decodes, context])


def _ramps(values: Sequence[int], knots: tuple[int, ...]) -> Floats:
    """How far each value reaches into each stretch between two knots."""
    low, high = np.array(knots[:-1]), np.array(knots[1:])
    return np.asarray(np.clip(np.array(values, np.float64)[:, None] - low, 0, high - low))


def fit(samples: Sequence[Sample], seconds: Floats, knots: tuple[int, ...]) -> Floats:
    """Coefficients of `features`, none negative, relative errors weighing alike."""
    columns = features(samples, knots)
    weight = 1.0 / np.maximum(seconds, 1e-6)
    scale = np.maximum(np.abs(columns * weight[:, None]).max(axis=0), 1e-12)
    found, _ = nnls(columns * weight[:, None] / scale, np.ones(len(seconds)))
    return np.asarray(found / scale, np.float64)


def phases(
    coefficients: Floats, at: tuple[int, ...]
) -> tuple[dict[str, list[float]], dict[str, list[float]], Floats]:
    """Prefill and decode of one part along the knots, and seconds by prompt tokens beyond those.

    The slope between the last two of `TOKEN_KNOTS` goes on; the third result says, at each of them,
    how far from it the seconds are.
    """
    stretches = len(TOKEN_KNOTS) - 1
    one, any_prompt, prompt, attended = coefficients[:4]
    tokens, decodes = coefficients[4 : 4 + stretches], coefficients[4 + stretches : -1]
    knots, flat = np.array(at, np.float64), np.ones(len(at))
    at_tokens = np.array(TOKEN_KNOTS, np.float64)
    seconds = np.concatenate([[0.0], np.cumsum(tokens * np.diff(at_tokens))])
    steps = np.concatenate([[0.0], np.cumsum(decodes * np.diff(knots))])
    prefill = {
        "base_s": one + any_prompt + prompt * (knots - 1),
        "per_padded_token_s": tokens[-1] * flat,
        "per_attended_s": attended * flat,
    }
    decode = {"base_s": one + steps, "per_context_s": coefficients[-1] * flat}
    return _short(prefill), _short(decode), seconds - tokens[-1] * at_tokens


def _short(columns: dict[str, Floats]) -> dict[str, list[float]]:
    return {name: [float(f"{v:.6g}") for v in values] for name, values in columns.items()}


def measure(sweep: Sweep, repeats: int) -> tuple[list[Sample], NDArray[np.float64]]:
    """Every iteration of the design, and its seconds (repetition, iteration, part)."""
    runs = design(sweep.kv_blocks * sweep.block_tokens)
    for designed in runs[:: max(1, len(runs) // 8)]:
        sweep.run(designed)
    kept: list[list[Sample]] = []
    started_s = time.monotonic()
    while len(kept) < repeats:
        kept.append([s for run in runs for s in sweep.run(run)])
        spent_s = time.monotonic() - started_s
        print(f"repetition {len(kept)}: {len(kept[-1])} iterations, {spent_s:.0f} s", flush=True)
        if len(kept) >= LEAST_REPEATS and spent_s * (1 + 1 / len(kept)) > MOST_S:
            break
    return kept[0], np.array([[s.seconds for s in samples] for samples in kept])


def profile(
    model: str, gpu: str, samples: list[Sample], seconds: Floats, sweep: Sweep
) -> dict[str, Any]:
    """What is stored: coefficients, their errors, and what the machine added."""
    least, knots = seconds.min(axis=0), knots_of(samples)
    slowdown = float(np.median(seconds.sum(axis=2) / least.sum(axis=1)))
    prefill: dict[str, Any] = {"sample": {}}
    decode: dict[str, Any] = {"sample": {}}
    step_s = np.zeros(len(TOKEN_KNOTS))
    for place, part in enumerate(PARTS):
        found = fit(samples, least[:, place], knots) * slowdown
        prefill[part], decode[part], more_s = phases(found, knots)
        step_s += more_s
    every = np.arange(len(samples))
    held_out = np.zeros(len(samples))
    for odd in (0, 1):
        taken = [samples[i] for i in every if i % 2 != odd]
        found = fit(taken, least.sum(axis=1)[every % 2 != odd], knots)
        left = [samples[i] for i in every if i % 2 == odd]
        held_out[every % 2 == odd] = features(left, knots) @ found
    errors = np.abs(held_out / least.sum(axis=1) - 1.0)
    decodes = np.array([s.prompts == 0 for s in samples])
    content: dict[str, Any] = {
        "model": model,
        "gpu": gpu,
        "engine": engine_name(),
        "kind": "measured",
        "source": "python -m harness.calibrate on this suite's own model",
        "block_tokens": sweep.block_tokens,
        "knots_requests": list(knots),
        "tensor_parallel": {
            "1": {
                "prefill": prefill,
                "step_knots_tokens": list(TOKEN_KNOTS),
                "step_s": [float(f"{v:.6g}") for v in step_s],
                "decode": decode,
                "load_s": float(f"{sweep.load_s:.4g}"),
                "load_source": "start of a process with the engine, compilation not included",
                "kv_blocks": sweep.kv_blocks,
                "valid": {
                    "requests": [1, max(s.decodes for s in samples)],
                    "prefill_tokens": [1, max(s.prompt_tokens for s in samples)],
                    "context_tokens": [1, max(s.context_tokens for s in samples)],
                    "longest": [1, max(s.longest_tokens for s in samples)],
                },
                "error": {
                    "decode_median": float(f"{np.median(errors[decodes]):.4g}"),
                    "decode_p95": float(f"{np.quantile(errors[decodes], 0.95):.4g}"),
                    "prefill_median": float(f"{np.median(errors[~decodes]):.4g}"),
                    "prefill_p95": float(f"{np.quantile(errors[~decodes], 0.95):.4g}"),
                },
            }
        },
        "measured": {
            "iterations": len(samples),
            "repetitions": len(seconds),
            "slowdown": float(f"{slowdown:.4g}"),
        },
    }
    text = json.dumps(content, sort_keys=True)
    return content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def residuals(samples: list[Sample], seconds: Floats, title: str) -> Figure:
    """Fitted over least measured seconds, against the measured ones."""
    least = seconds.min(axis=0).sum(axis=1)
    knots = knots_of(samples)
    fitted = features(samples, knots) @ fit(samples, least, knots)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    decodes = np.array([s.prompts == 0 for s in samples])
    for kind, name in ((decodes, "decodes only"), (~decodes, "with prompts")):
        axes.scatter(least[kind] * 1e3, fitted[kind] / least[kind], s=6, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured ms", ylabel="fitted over measured", title=title)
    axes.legend(frameon=False)
    return figure


def calibrate(model: str, out: Path, *, gpu: str, engine: Vllm, repeats: int) -> Path:
    """Measure one model and write its profile and residual plot below `out`."""
    facts = model_facts(model)
    service = Service(ServiceId(model), facts.kv_bytes_per_token, facts.max_context_tokens)
    group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
    sweep = Sweep(engine.settings(service, group), service)
    try:
        samples, seconds = measure(sweep, repeats)
    finally:
        sweep.stop()
    content = profile(model, gpu, samples, seconds, sweep)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{model}.json"
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    residuals(samples, seconds, f"{model}, {engine_name()}").savefig(out / f"{model}.png", dpi=110)
    return path


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.calibrate", description=__doc__)
    parser.add_argument("--model", nargs="+", default=["tiny"], help="names in models.json")
    parser.add_argument("--gpu", default="CPU", help="what it runs on, a name in gpus.json")
    parser.add_argument("--out", type=Path, default=PROFILES / "cpu_vllm", help="profile folder")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kv-blocks", type=int, default=400, help="0 leaves it to vLLM")
    options = parser.parse_args(arguments)
    is_cpu = options.gpu == "CPU"
    engine = Vllm(
        cluster=Cluster((GpuId(0),), (), 0),
        seed=0,
        models={},
        load_format="dummy",
        dtype="bfloat16",
        max_num_seqs=256,
        max_num_batched_tokens=ARRIVALS[0][0],
        kv_blocks=options.kv_blocks or None,
        block_tokens=32 if is_cpu else None,
        prefix_caching=False,
        eager=is_cpu,
        keep_answers=False,
        keep_loaded=False,
        ray=False,
        on_loss="fail",
        texts=None,
        forces_lengths=True,
    )
    try:
        for model in options.model:
            path = calibrate(
                model, options.out, gpu=options.gpu, engine=engine, repeats=options.repeats
            )
            print(f"wrote {path}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
