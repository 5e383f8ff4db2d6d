"""EcoServe and the schedulers beside it on real vLLM: the simulator's batches, exact answers."""

from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.yaml_files import read_policy
from harness.engines.ask import counts_of
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision
from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import SchedulingPolicy, System
from harness.interface.views import GroupView
from harness.policy_checks import assert_same
from harness.tests.support.batches import Watched, watched
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, workload
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.tests.support.real_engine import BLOCK, BLOCKS, MAX_NUM_SEQS, TOKENS, kept_engine  # noqa: E402

FILES = Path(__file__).parents[2] / "scenarios" / "policy"
ENOUGH_LOANS = {
    "padding": 0.0,
    "reserved_share": 0.15,
    "waiting_share": 0.15,
    "target_tokens": 64,
    "buffer_share": 0.0,
    "smallest_tokens": 8,
    "more_tokens": 32,
    "fill": "order",
}
"""Settings with which waiting generations are many, and lent to."""


class Noisy:
    """True lengths times a lognormal factor, at once."""

    foresees: ClassVar[bool] = False

    def __init__(self, load: Workload) -> None:
        noise = np.random.default_rng(1).lognormal(0.0, 0.6, len(load))
        self._tokens = np.clip(load.output_tokens * noise, 1, 250).astype(int).tolist()

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length of the request."""
        return LengthPrediction((self._tokens[request.id],)), 0.0


class At:
    """A view at another time."""

    def __init__(self, view: GroupView, now_s: float) -> None:
        self._view, self.now_s = view, now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


class Timed:
    """A policy that keeps the time of its decisions, or decides at `given` times.

    Times are by the number of iterations before them.
    """

    def __init__(self, inner: SchedulingPolicy, given: dict[int, float] | None = None) -> None:
        self.inner, self.given = inner, given
        self.requires, self.subscribes = inner.requires, inner.subscribes
        self.observe = inner.observe
        self.times_s: dict[int, float] = {}
        self.watched: Watched = watched(cast(SchedulingPolicy, self))

    def schedule(self, view: GroupView) -> Decision:
        """As the policy decides at that time."""
        number = len(self.watched.steps)
        if self.given is None:
            self.times_s[number] = view.now_s
            return self.inner.schedule(view)
        numbers = sorted(self.given)  # a steady decision was asked for once
        now_s = self.given[numbers[bisect_right(numbers, number) - 1]]
        return self.inner.schedule(cast(GroupView, At(view, now_s)))


def policy(name: str, *, by_deadline: bool) -> SchedulingPolicy:
    """The policy of a file, with limits that bind on a small engine."""
    node = read_policy(FILES / f"{name}.yaml")
    if "rule" in node:
        node["rule"] |= {"max_num_seqs": 8, "max_num_batched_tokens": TOKENS}
    else:
        node |= ENOUGH_LOANS
    if node.get("ranking"):
        token_s, ranges_s = (0.01, [0.05, 0.2, 0.5]) if by_deadline else (0.0, [])
        node["ranking"] |= {"prompt_s": 0.01, "token_s": token_s, "slack_ranges_s": ranges_s}
    made: SchedulingPolicy = build(node, offered={})
    return made


def load() -> Workload:
    """A backlog of 40 requests with answers of up to 250 tokens."""
    rng = np.random.default_rng(4)
    outputs = np.rint(np.clip(rng.lognormal(3.9, 0.9, 40), 1, 250)).astype(int).tolist()
    prompts = rng.integers(1, 30, 40).tolist()
    made = workload(prompts, outputs, [0.0] * 40, 1, max_context_tokens=1024)
    (service,) = made.services
    return replace(made, services=(replace(service, kv_bytes_per_token=100),))


def serve(by: Engine, timed: Timed) -> Recorder:
    """Serve the backlog."""
    work, recorder = load(), Recorder()
    system = System(
        "test", timed.watched, RoundRobin(), Everywhere(("m", (0,))), predictor=Noisy(work)
    )
    by.run(work, system, recorder)
    return recorder


@pytest.mark.parametrize(
    ("name", "by_deadline"),
    [
        ("orca", False),
        ("ecoserve_sd", False),
        ("ecoserve_full", True),
        ("ecoserve_full", False),
    ],
)
def test_real_vllm_runs_the_simulators_batches(name: str, by_deadline: bool) -> None:
    """The simulator decides at the times at which the real engine did; loans and recalls occur."""
    real = Timed(policy(name, by_deadline=by_deadline))
    measured = serve(kept_engine(), real)
    simulated = Timed(policy(name, by_deadline=by_deadline), real.times_s)
    simulator = Simulator(
        cluster=cluster(1),
        costs=LinearCosts(blocks=BLOCKS, block=BLOCK, load=0.0),
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=TOKENS,
        fast_forward=False,
    )
    serve(simulator, simulated)
    ours, theirs = ([(0.0, step[1]) for step in it.watched.steps] for it in (simulated, real))
    assert_same(ours, theirs)
    np.testing.assert_array_equal(measured.requests["output_tokens"], load().output_tokens)
    counts = counts_of(real.inner)
    assert counts == counts_of(simulated.inner)
    if name == "ecoserve_full":
        assert counts["loans"] > 0
        assert by_deadline or counts["recalled"] > 0
