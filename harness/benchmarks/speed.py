"""Requests simulated per second: W1 under every policy, a million requests, 64 replicas."""

import json
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from harness.benchmarks.draft_policies import DraftFcfs, DraftSrpt
from harness.benchmarks.moving_policies import allocating, moving, moving_every_token, static
from harness.benchmarks.reference_load import (
    SEED,
    reference_cluster,
    reference_costs,
    reference_host_memory,
    serve_s,
    w1,
)
from harness.build import build
from harness.engines.recorder import Recorder
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder, StaticBatching
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy
from harness.interface.views import GroupView
from harness.paths import ROOT
from harness.workloads.workload import Workload
from harness.yaml_files import policy_files, read_policy

REPEATS = 5
SLOW_S = 10.0
"""Policies that take longer are measured once."""
SEATS = 28
"""Of orders that move: fewer than W1 fills at times, so that they are contested."""
ALLOCATED, CONTEXT_TOKENS = 8, 4096
"""Requests at once and context that KV is set aside for, as engines of fixed batches have it."""

_MILLION = """
import json, resource
from harness.benchmarks.speed import policies
from harness.benchmarks.reference_load import serve_s, w1
policy = policies()["vllm"]
serve_s(policy, w1(1000, 1), 1)
seconds = serve_s(policy, w1(1_000_000, 1), 1)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak]))
"""


def policies(offered: Mapping[str, object] | None = None) -> dict[str, SchedulingPolicy]:
    """Every scheduling policy of the tree by the name of its file.

    Constructors get what is `offered`, or what belongs to the machine that W1 is served on.
    """
    offered = offered or {
        "costs": reference_costs(),
        "cluster": reference_cluster(1),
        "seed": SEED,
        "host_memory": reference_host_memory(),
    }
    return {path.stem: build(read_policy(path), offered=offered) for path in policy_files()}


def kinds() -> dict[str, dict[str, SchedulingPolicy]]:
    """Policies by what an engine must do for them, those of the tree and some made up.

    Orders that stand still, that move with progress, of which the keys are asked again, that batch
    whole requests or set KV aside, decisions written as drafts, and policies among those that
    preempt more often than requests arrive.
    """
    rules = {path.stem: _rule(path) for path in policy_files()}
    tree: dict[str, dict[str, SchedulingPolicy]] = {}
    tried = policies()
    for name, policy in policies().items():
        tree.setdefault(_kind(tried[name], rules[name]), {})[name] = policy
    seats = rules["vllm"]
    assert isinstance(seats, ContinuousBatching)
    moves: dict[str, SchedulingPolicy] = {**moving(replace(seats, max_num_seqs=SEATS))}
    orders = tree[ContinuousBatching.__name__]
    return {
        # One of the tree that is made up, too, is of the kind of that.
        "standing": {name: policy for name, policy in orders.items() if name not in moves},
        "moving": moves,
        "moving_every_token": {**moving_every_token(replace(seats, max_num_seqs=SEATS))},
        "request_batches": {**tree[StaticBatching.__name__], **static(2 * ALLOCATED)},
        "allocation": {**allocating(replace(seats, max_num_seqs=ALLOCATED), CONTEXT_TOKENS)},
        "draft": {
            "draft_fcfs": DraftFcfs(),
            "draft_srpt": DraftSrpt(max_num_seqs=SEATS),
            **tree["draft"],
        },
        **{kind: tree[kind] for kind in ("renewed", "thrashing") if kind in tree},
    }


def _kind(policy: SchedulingPolicy, rule: object) -> str:
    """What its file has as rule; `renewed`, `draft` or `thrashing` if it is asked again and again.

    The keys of a `renewed` order are asked again at events or as time passes.
    """
    recorder, load = Recorder(), w1(50, 1)
    orders = _orders(policy, load, recorder)
    if any(order.renews for order in orders):
        return "renewed"
    if rule is not None and len(recorder.decision_s["schedule"]) <= len(load) / 10:
        return type(rule).__name__
    # A run of more preemptions than requests is mostly those: its seconds say little about policies
    # that sort or scan all requests in each iteration, which the kind of drafts is to show.
    return "thrashing" if recorder.requests["preemptions"].sum() > len(load) else "draft"


def _orders(policy: SchedulingPolicy, load: Workload, recorder: Recorder) -> list[PriorityOrder]:
    """Serve a load under a policy; returns the orders that it has decided on."""
    orders: list[PriorityOrder] = []

    class Listed:
        subscribes: ClassVar[frozenset[type[Event]]] = policy.subscribes
        requires = policy.requires

        def observe(self, event: Event) -> None:
            policy.observe(event)

        def schedule(self, view: GroupView) -> Decision:
            decision = policy.schedule(view)
            orders.extend(filter(None, [decision.priority_order]))
            return decision

    serve_s(Listed(), load, 1, recorder)
    return orders


def _rule(path: Path) -> object:
    """The batch rule of a policy's file; None where it decides in the open."""
    node = read_policy(path)
    return build(node["rule"]) if "rule" in node else None


def measure() -> dict[str, float]:
    """Figures of this module; after a warm-up, the best of several repetitions.

    `slowest_..._requests_per_s` is the smallest over the policies of a kind.
    """
    figures: dict[str, float] = {}
    for kind, members in kinds().items():
        rates = {}
        for name, policy in members.items():
            load = w1(2000, 1)
            serve_s(deepcopy(policy), w1(50, 1), 1)
            best_s = serve_s(deepcopy(policy), load, 1)
            for _ in range(REPEATS - 1 if best_s < SLOW_S else 0):
                best_s = min(best_s, serve_s(deepcopy(policy), load, 1))
            rates[f"w1_{name}_requests_per_s"] = len(load) / best_s
        figures |= rates
        figures[f"slowest_{kind}_requests_per_s"] = min(rates.values())
    figures["w1_fcfs_requests_per_s"] = figures["w1_vllm_requests_per_s"]
    out = subprocess.run(
        [sys.executable, "-c", _MILLION], check=True, capture_output=True, text=True, cwd=ROOT
    )
    seconds, peak_bytes = json.loads(out.stdout)
    figures["w1_1m_requests_per_s"] = 1_000_000 / seconds
    figures["w1_1m_peak_rss_bytes"] = peak_bytes
    for replicas in (8, 64):
        load = w1(2000 * replicas, replicas)
        seconds = min(serve_s(policies()["vllm"], load, replicas) for _ in range(3))
        figures[f"replicas{replicas}_requests_per_s"] = len(load) / seconds
    return figures
