"""Requests simulated per second: W1 under every policy, a million requests, 64 replicas."""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from harness.config.build import build
from harness.config.yaml_files import policy_files, read_policy
from harness.engines.recorder import Recorder
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder, StaticBatching
from harness.interface.policies import SchedulingPolicy
from harness.interface.views import GroupView
from harness.tools.benchmarks.moving_policies import (
    DraftFcfs,
    DraftSrpt,
    allocating,
    moving,
    moving_every_token,
    static,
)
from harness.tools.benchmarks.reference_load import (
    SEED,
    best_s,
    printed,
    reference_cluster,
    reference_costs,
    reference_host_memory,
    serve_s,
    vllm_policy,
    vllm_rule,
    w1,
)
from harness.workloads.workload import Workload

REPEATS = 5
SLOTS = 28
"""Of orders that move: fewer than W1 fills at times, so that they are contested."""
ALLOCATED, CONTEXT_TOKENS = 8, 4096
"""Requests at once and context that KV is set aside for, as engines of fixed batches have it."""

_MILLION = (
    "from harness.tools.benchmarks import long_trace, reference_load\n"
    "long_trace.print_served(reference_load.w1(1_000_000, 1))"
)


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
    whole requests or set KV aside, decisions written as drafts, and policies among all those that
    preempt more often than requests arrive.
    """
    tree: dict[str, dict[str, SchedulingPolicy]] = {}
    tried, fresh, slots = policies(), policies(), vllm_rule(max_num_seqs=SLOTS)
    for path in policy_files():
        kind = _kind(tried[path.stem], read_policy(path).get("rule"))
        tree.setdefault(kind, {})[path.stem] = fresh[path.stem]
    moves: dict[str, SchedulingPolicy] = {**moving(slots)}
    orders = tree[ContinuousBatching.__name__]
    return {
        # One of the tree that is made up, too, is of the kind of that.
        "standing": {name: policy for name, policy in orders.items() if name not in moves},
        "moving": moves,
        "moving_every_token": {**moving_every_token(slots)},
        "request_batches": {**tree[StaticBatching.__name__], **static(2 * ALLOCATED)},
        "allocation": {**allocating(vllm_rule(max_num_seqs=ALLOCATED), CONTEXT_TOKENS)},
        "draft": {"draft_fcfs": DraftFcfs(), "draft_srpt": DraftSrpt(SLOTS), **tree["draft"]},
        **{kind: tree[kind] for kind in ("renewed", "thrashing") if kind in tree},
    }


def _kind(policy: SchedulingPolicy, rule: Any) -> str:
    """What its file has as rule; `renewed`, `draft` or `thrashing` if it is asked again and again.

    The keys of a `renewed` order are asked again at events or as time passes.
    """
    recorder, load = Recorder(), w1(50, 1)
    orders: list[PriorityOrder] = []

    class Listed:
        def __getattr__(self, name: str) -> Any:
            return getattr(policy, name)

        def schedule(self, view: GroupView) -> Decision:
            decision = policy.schedule(view)
            orders.extend(filter(None, [decision.priority_order]))
            return decision

    listed: Any = Listed()
    serve_s(listed, load, 1, recorder)
    if any(order.renews for order in orders):
        return "renewed"
    # A run of more preemptions than requests is mostly those: its seconds say little about other
    # policies of which an engine asks the same.
    if recorder.requests["preemptions"].sum() > len(load):
        return "thrashing"
    if rule is not None and len(recorder.decision_s["schedule"]) <= len(load) / 10:
        return str(rule["_target_"]).rpartition(".")[2]
    return "draft"


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
            seconds = best_s(partial(_served_s, policy, load), REPEATS)
            rates[f"w1_{name}_requests_per_s"] = len(load) / seconds
        figures |= rates
        figures[f"slowest_{kind}_requests_per_s"] = min(rates.values())
    figures["w1_fcfs_requests_per_s"] = figures["w1_vllm_requests_per_s"]
    seconds, peak_bytes = printed(["-c", _MILLION])
    figures["w1_1m_requests_per_s"] = 1_000_000 / seconds
    figures["w1_1m_peak_rss_bytes"] = peak_bytes
    for replicas in (8, 64):
        load = w1(2000 * replicas, replicas)
        seconds = min(serve_s(vllm_policy(), load, replicas) for _ in range(3))
        figures[f"replicas{replicas}_requests_per_s"] = len(load) / seconds
    return figures


def _served_s(policy: SchedulingPolicy, load: Workload) -> float:
    return serve_s(deepcopy(policy), load, 1)
