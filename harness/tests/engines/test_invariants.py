"""What no run may break, whatever the policy: random workloads under every policy and batch rule.

Every run is made twice: with fast-forward, and decided in the open, where a witness sees every
batch begin and end. `test_every_policy.py` and `test_fast_forward.py` hold the two together.
"""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.config.build import build
from harness.config.paths import ROOT
from harness.config.yaml_files import policy_files, read_policy
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.loop import SUPPORTS
from harness.interface.decisions import ContinuousBatching, Decision, StaticBatching
from harness.interface.entities import RequestId, Work
from harness.interface.events import Arrived, Event, Finished, Iterated
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.support.files import offered_to_all
from harness.tests.support.ledger_problems import problems
from harness.tests.support.loads import Load, loads
from harness.tests.support.serving import SERVICE, LinearCosts, cluster, rule, serve, workload
from harness.tools.benchmarks.speed import policies
from harness.tools.verify.estimates import area_under_number_s
from harness.workloads.workload import Workload

RULES = {
    "padded": rule(chunked_prefill=False, pads=True, max_num_seqs=4, tokens=300, padding=40),
    "whole": rule(chunked_prefill=False, pads=False, max_num_seqs=6, tokens=220),
    "chunked": rule(chunked_prefill=True, max_num_seqs=6, tokens=16),
    "spare": rule(chunked_prefill=True, max_num_seqs=8, tokens=40, spare=0.02),
}
LOAD_S = 0.25
OFFERED = offered_to_all(LinearCosts(), cluster())
FILES = {path.stem: path for path in policy_files()}
_node = cache(read_policy)


def _policy(name: str) -> SchedulingPolicy:
    """A fresh policy: of a file, or FCFS by a rule; skips what the simulator does not offer."""
    if name in RULES:
        return Fcfs(rule=RULES[name])
    policy: SchedulingPolicy = build(_node(FILES[name]), offered=OFFERED)
    if missing := policy.requires - SUPPORTS:
        pytest.skip(f"the simulator lacks {', '.join(sorted(c.value for c in missing))}")
    return policy


EVERY = pytest.mark.parametrize("name", [*RULES, *FILES])


@dataclass
class Witness:
    """Lets a policy decide; adds up what batches did and what was held before each decision."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    inner: SchedulingPolicy
    waited: bool = False
    rule: ContinuousBatching | StaticBatching | None = None
    computed: Counter[RequestId] = field(default_factory=Counter)
    produced: Counter[RequestId] = field(default_factory=Counter)
    batch_s: defaultdict[RequestId, float] = field(default_factory=lambda: defaultdict(float))
    ends_s: list[float] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Pass on what the policy hears."""
        if type(event) in self.inner.subscribes:
            self.inner.observe(event)
        if isinstance(event, Iterated):
            self.ends_s.append(event.now_s)
            assert self.rule is None or len(event.batch.tokens) <= self.rule.max_num_seqs
            for request, tokens in event.batch.tokens.items():
                self.computed[request] += tokens + max(0, event.new_tokens[request] - 1)
                self.produced[request] += event.new_tokens[request]
                self.batch_s[request] += event.duration_s

    def schedule(self, view: GroupView) -> Decision:
        """Count the blocks of all holders: they fit, and the ledger says the same."""
        (service,) = view.services
        held = {name: request.kv_tokens for name, request in view.requests.items()}
        promised = {n: r.reservation.own_tokens for n, r in view.requests.items() if r.reservation}
        taken = (max(tokens, promised.get(name, 0)) for name, tokens in held.items())
        blocks = sum(map(view.kv.blocks, taken))
        assert held == {name: view.kv.holding(name) for name in held}
        assert blocks + view.kv.free_blocks(service) == view.kv.capacity_blocks(service)
        assert view.kv.free_blocks(service) >= 0
        assert problems(view.kv) == []
        decision = self.inner.schedule(view)
        self.rule = decision.priority_order.rule if decision.priority_order else None
        waits = isinstance(self.rule, StaticBatching) and self.rule.max_wait_s > 0
        self.waited |= waits or (not decision.launch and decision.priority_order is None)
        return decision


def _witness(policy: SchedulingPolicy) -> Witness:
    """A witness with the policy's own needs, that hears what the policy does."""

    class Same(Witness):
        requires = policy.requires
        subscribes = policy.subscribes | {Iterated}

    return Same(policy)


def _served(load: Workload, policy: SchedulingPolicy, blocks: int, fast: bool) -> Recorder:
    recorder = Recorder(keep_events=True, keep_iterations=True)
    costs = LinearCosts(blocks=blocks, load=LOAD_S)
    return serve(load, policy, costs=costs, fast_forward=fast, gpus=1, recorder=recorder)


def _assert_little(recorder: Recorder) -> None:
    """Requests in the system, counted by events, against response times of the table."""
    frame = recorder.requests
    response_s = (frame["finished_s"] - frame["arrival_s"]).sum()
    assert area_under_number_s(recorder) == pytest.approx(response_s, rel=1e-9)


def _assert_causal(load: Workload, recorder: Recorder) -> None:
    """Nothing is faster than alone on an idle GPU; events go forward; each request ends once."""
    frame, costs = recorder.requests, LinearCosts()
    first_s, last_s = frame["first_token_s"].to_numpy(), frame["finished_s"].to_numpy()
    for request, prompt in enumerate(load.prompt_tokens.tolist()):
        alone = Work(1, prompt, prompt, float(prompt) ** 2)
        prefill_s = costs.iteration_s(SERVICE, 1, alone)
        decode_s = costs.iteration_s(SERVICE, 1, Work(0, 0, 0, 0.0, 1, prompt + 1, prompt + 1))
        start_s = max(load.arrival_s[request], LOAD_S)
        decodes_s = (load.output_tokens[request] - 1) * decode_s
        assert first_s[request] >= (start_s + prefill_s) * (1 - 1e-12)
        # Batches of whole requests return all tokens of an answer together.
        together = first_s[request] == last_s[request]
        since_s = start_s + prefill_s if together else first_s[request]
        assert last_s[request] >= (since_s + decodes_s) * (1 - 1e-12)
    times = [event.now_s for event in recorder.events]
    assert times == sorted(times)
    for kind in (Arrived, Finished):
        names = [event.request.id for event in recorder.events if isinstance(event, kind)]
        assert sorted(names) == list(range(len(load)))


def _assert_work_conserving(recorder: Recorder) -> None:
    """After the load, the GPU pauses only while every request that has arrived is finished."""
    frame, intervals = recorder.requests, recorder.gpu_frame()
    busy = intervals[intervals["use"] == GpuUse.BUSY.value]
    ends_s = np.concatenate([[LOAD_S], busy["end_s"].to_numpy()])
    starts_s = busy["start_s"].to_numpy()
    assert (starts_s >= ends_s[:-1] * (1 - 1e-12)).all()
    for idle_from_s, idle_to_s in zip(ends_s[:-1], starts_s, strict=True):
        if idle_to_s - idle_from_s > 1e-9:
            waiting = (frame["arrival_s"] < idle_to_s) & (frame["finished_s"] > idle_from_s + 1e-9)
            assert not waiting.any()


@EVERY
@given(load=loads(24, 60), blocks=st.sampled_from([12, 17, 30, 200]))
@settings(max_examples=5, deadline=None)
def test_a_run_in_the_open(name: str, load: Load, blocks: int) -> None:
    """KV, tokens and seconds add up batch by batch."""
    wanted, witness = workload(*load), _witness(_policy(name))
    recorder = _served(wanted, witness, blocks, fast=False)
    frame = recorder.requests
    for request, output in enumerate(wanted.output_tokens.tolist()):
        once = int(wanted.prompt_tokens[request]) + output - 1
        assert witness.produced[RequestId(request)] == output == frame["output_tokens"][request]
        if frame["preemptions"][request] > frame["swaps"][request]:
            assert witness.computed[RequestId(request)] > once
        else:
            assert witness.computed[RequestId(request)] == once
        seconds = witness.batch_s[RequestId(request)]
        assert frame["gpu_s"][request] == pytest.approx(seconds, rel=1e-9)
    assert witness.ends_s == sorted(witness.ends_s)
    _assert_little(recorder)
    _assert_causal(wanted, recorder)
    if not witness.waited:
        _assert_work_conserving(recorder)


@EVERY
@given(load=loads(24, 60), blocks=st.sampled_from([12, 17, 30, 200]))
@settings(max_examples=5, deadline=None)
def test_a_run_with_fast_forward(name: str, load: Load, blocks: int) -> None:
    """The same from outside: events, request table, busy intervals and log of iterations."""
    wanted, witness = workload(*load), _witness(_policy(name))
    recorder = _served(wanted, witness, blocks, fast=True)
    np.testing.assert_array_equal(recorder.requests["output_tokens"], wanted.output_tokens)
    _assert_little(recorder)
    _assert_causal(wanted, recorder)
    if not witness.waited:
        _assert_work_conserving(recorder)
    log = recorder.iteration_frame()
    assert log is not None
    if isinstance(witness.rule, StaticBatching):
        return
    _assert_log_adds_up(wanted, recorder, log, blocks)
    if witness.rule is not None:
        together = log["prefill_requests"] + log["decode_requests"]
        assert (together <= witness.rule.max_num_seqs).all()
        assert (log["prefill_padded_tokens"] <= witness.rule.max_num_batched_tokens).all()


def _assert_log_adds_up(load: Workload, recorder: Recorder, log: pd.DataFrame, blocks: int) -> None:
    """The log holds the seconds of the request table and the GPU, and the tokens of the load."""
    frame, intervals = recorder.requests, recorder.gpu_frame()
    busy = intervals[intervals["use"] == GpuUse.BUSY.value]
    together = log["prefill_requests"] + log["decode_requests"]
    in_batches_s = (log["duration_s"] * together).sum()
    assert in_batches_s == pytest.approx(frame["gpu_s"].sum(), rel=1e-9)
    busy_s = (busy["end_s"] - busy["start_s"]).sum()
    assert log["duration_s"].sum() == pytest.approx(busy_s, rel=1e-9)
    done = (log["prefill_tokens"] + log["decode_requests"] * log["iterations"]).sum()
    once = (load.prompt_tokens + load.output_tokens - 1).sum()
    recomputes = (frame["preemptions"] > frame["swaps"]).any()
    assert done > once if recomputes else done == once
    # a decode holds its context when it ends, and grows by a token in every iteration of a run
    grown = log["decode_requests"] * (log["iterations"] - 1)
    held = log["context_tokens"] + grown + log["prefill_tokens"]
    assert (held <= blocks * LinearCosts().block).all()


def _digests() -> dict[str, str]:
    """One run of every policy and rule, as a hash of all its requests' columns to the last bit."""
    rng = np.random.default_rng(17)
    prompts, outputs = rng.integers(1, 90, 60).tolist(), rng.integers(1, 60, 60).tolist()
    load = workload(prompts, outputs, np.cumsum(rng.exponential(0.05, 60)).tolist(), services=2)
    found = {}
    rules = {name: Fcfs(rule=batch_rule) for name, batch_rule in RULES.items()}
    for name, policy in sorted((rules | policies(OFFERED)).items()):
        if not policy.requires - SUPPORTS:
            frame = serve(load, policy, costs=LinearCosts(blocks=24)).requests
            numbers = frame.select_dtypes("number").to_numpy(float)
            found[name] = hashlib.sha256(numbers.tobytes()).hexdigest()
    return found


def _digests_elsewhere(hash_seed: int) -> str:
    code = "from harness.tests.engines.test_invariants import _digests; print(_digests())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": "."},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_other_processes_find_the_same() -> None:
    """Whatever order their sets have."""
    assert _digests_elsewhere(1) == str(_digests())
