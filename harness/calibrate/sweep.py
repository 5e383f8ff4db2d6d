"""A designed sweep of batches through one engine, several times over."""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baselines.fcfs import Fcfs
from harness.calibrate.stored import Sample
from harness.engines.vllm.group import EngineSettings, Submission, VllmGroup, new_engines
from harness.engines.vllm.processor import has_gpus
from harness.engines.vllm.ray import RayGroup, slots_of_ray
from harness.engines.vllm.step import Iteration
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import (
    AppId,
    GpuId,
    Group,
    GroupId,
    Request,
    RequestId,
    Service,
    TenantId,
)

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


@dataclass(frozen=True, slots=True)
class Designed:
    """One run of the sweep: prompts in tokens, the budget of a batch, iterations per arrival."""

    prompts: tuple[int, ...]
    budget: int
    gap: int


def design(most_tokens: int, most_requests: int = REQUESTS[-1]) -> list[Designed]:
    """Every run of the sweep whose KV fits, of no more than so many requests."""
    rng = np.random.default_rng(0)
    runs = []
    for budget, gap in ARRIVALS:
        for requests in REQUESTS:
            for median in PROMPTS:
                drawn = median * np.exp(SPREAD * rng.standard_normal(requests))
                prompts = tuple(np.rint(drawn).astype(int).clip(1, LONGEST).tolist())
                tokens = sum(prompts) + 2 * ANSWER_TOKENS * requests
                if requests <= most_requests and tokens <= most_tokens:
                    runs.append(Designed(prompts, budget, gap))
    return runs


class Sweep:
    """One engine that the designed runs go through, again and again."""

    def __init__(self, settings: EngineSettings, service: Service) -> None:
        """Load the model; `load_s` is how long that takes in a process of its own."""
        self._service = service
        self._group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
        self.load_s = load_seconds(settings, self._group, service)
        self._served = VllmGroup(new_engines([settings]), False, (settings,))
        self.kv_blocks = self._served.kv_blocks
        self.block_tokens = self._served.block_tokens
        self._next = 0

    def run(self, designed: Designed) -> list[Sample]:
        """The iterations of one run; answers differ in length, so that batches shrink."""
        policy = Fcfs(rule=_rule(designed.budget))
        self._served.use(policy, group=self._group, services=[self._service])
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
    with slots_of_ray(group.tensor_parallel):
        started_s = time.monotonic()
        served = RayGroup.start(
            (settings,),
            group=group,
            services=[service],
            policy=Fcfs(rule=_rule(settings.max_num_batched_tokens)),
            keep_answers=False,
            on_gpus=has_gpus(),
        )
        served.wait()
        seconds = time.monotonic() - started_s
        served.stop()
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


def measure(
    sweep: Sweep, repeats: int, most_requests: int
) -> tuple[list[Sample], NDArray[np.float64]]:
    """Every iteration of the design, and its seconds (repetition, iteration, part)."""
    runs = design(sweep.kv_blocks * sweep.block_tokens, most_requests)
    for designed in runs[:: max(1, len(runs) // 8)]:
        sweep.run(designed)
    found: list[list[Sample]] = []
    started_s = time.monotonic()
    while len(found) < repeats:
        found.append([sample for designed in runs for sample in sweep.run(designed)])
        spent_s = time.monotonic() - started_s
        print(f"repetition {len(found)}: {len(found[-1])} iterations, {spent_s:.0f} s", flush=True)
        if len(found) >= LEAST_REPEATS and spent_s * (1 + 1 / len(found)) > MOST_S:
            break
    return found[0], np.array([[s.seconds for s in samples] for samples in found])
