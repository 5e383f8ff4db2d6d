"""How both engines ask policies: timed, checked, and refused with one sentence."""

from collections.abc import Mapping
from time import perf_counter

from harness.core.checks import IllegalDecision, check, swaps
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, Deployment, Prewarm, Until
from harness.interface.entities import Cluster, ServiceId
from harness.interface.policies import (
    Capability,
    HasCounts,
    PlacementPolicy,
    PrewarmPolicy,
    SchedulingPolicy,
)
from harness.interface.views import ClusterView, GroupView, RequestView

MOST_WAKES = 10_000
"""Timers in a row that may end while nothing is computed, predicted or yet to arrive."""


def ask_schedule(
    policy: SchedulingPolicy,
    window: GroupView,
    group: GroupView,
    *,
    supports: frozenset[Capability],
) -> tuple[Decision, float]:
    """The policy's decision on a group that it sees through `window`, and its wall-clock seconds.

    Raises IllegalDecision when the policy breaks a rule.
    """
    started_s = perf_counter()
    decision = policy.schedule(window)
    seconds = perf_counter() - started_s
    _refuse(policy, group, check(decision, group, supports=supports))
    return decision, seconds


def counts_of(policy: SchedulingPolicy, promotions: int | None = None) -> dict[str, int]:
    """What a policy has counted so far, and promotions under its orders, if any promotes."""
    counts = dict(policy.counts()) if isinstance(policy, HasCounts) else {}
    return counts if promotions is None else counts | {"promotions": promotions}


def refuse_idling(policy: SchedulingPolicy, group: GroupView, decision: Decision) -> None:
    """Raise IllegalDecision where requests would wait for ever."""
    if not decision.launch and decision.wake_s is None:
        waiting = len(group.requests)
        problem = f"{waiting} requests wait, nothing runs and no time to wake is given"
        longest = max(group.requests.values(), key=lambda it: it.context_tokens, default=None)
        _refuse(policy, group, [problem] if longest is None else [problem, _needs(longest, group)])


def refuse_shares(policy: SchedulingPolicy, group: GroupView, decision: Decision) -> None:
    """Raise IllegalDecision for what is not modelled of batches on shares of the SMs."""
    shares = [batch.gpu_share for batch in decision.launch if batch.gpu_share < 1]
    if not shares:
        return
    whole = any(batch.until is not Until.ITERATION for batch in decision.launch)
    if whole or swaps(decision) or decision.reserve:
        problem = (
            f"a batch on share {shares[0]:g} of the SMs with requests that run until answered, are"
            " swapped or reserve KV is not modelled"
        )
        _refuse(policy, group, [problem])


def _needs(request: RequestView, group: GroupView) -> str:
    """What a request takes beside what its group has."""
    service, kv = request.facts.service, group.kv
    blocks, of_bytes = kv.blocks(request.context_tokens, service), kv.block_bytes(service)
    return (
        f"r{request.facts.id} has {request.context_tokens} tokens in {blocks} KV blocks "
        f"({blocks * of_bytes:,} bytes); there are {kv.capacity_blocks(service)} blocks "
        f"({kv.capacity_bytes:,} bytes), {kv.free_blocks(service)} of them free, and "
        f"{group.max_num_batched_tokens} tokens a batch, or fewer by the policy's own rule"
    )


def _refuse(policy: SchedulingPolicy, group: GroupView, problems: list[str]) -> None:
    if problems:
        raise IllegalDecision(
            f"{type(policy).__name__} in {group.group.id} at {group.now_s:.3f} s: "
            + "; ".join(problems)
        )


def ask_deployment(policy: PlacementPolicy, view: ClusterView, recorder: Recorder) -> Deployment:
    """The policy's deployment; the wall-clock seconds it took are recorded.

    Raises ValueError where it asks to be woken in the past.
    """
    now_s, started_s = view.now_s, perf_counter()
    deployment = policy.place(view)
    recorder.decided("place", perf_counter() - started_s)
    _refuse_past(policy, deployment.wake_s, now_s)
    return deployment


def ask_prewarming(policy: PrewarmPolicy, view: ClusterView, recorder: Recorder) -> Prewarm:
    """The policy's decision on backends; the wall-clock seconds it took are recorded.

    Raises ValueError where it asks to be woken in the past.
    """
    now_s, started_s = view.now_s, perf_counter()
    decision = policy.prewarm(view)
    recorder.decided("prewarm", perf_counter() - started_s)
    _refuse_past(policy, decision.wake_s, now_s)
    return decision


def _refuse_past(policy: object, wake_s: float | None, now_s: float) -> None:
    if wake_s is not None and not wake_s > now_s:
        raise ValueError(f"{type(policy).__name__}: wake_s {wake_s} s is not after now, {now_s} s")


def refuse_shared_groups(wanted: Deployment, supports: frozenset[Capability]) -> None:
    """Raise ValueError where a group has none or several services and the engine needs one."""
    for group in wanted.groups:
        count = len(group.services)
        if not count or (count > 1 and Capability.SHARED_GROUP not in supports):
            raise ValueError(
                f"a deployment has {count} services in {group.id}, which is not supported here"
            )


def refuse_standstill(
    unfinished: Mapping[ServiceId, int], *, wakes: int | None, now_s: float
) -> None:
    """Raise ValueError where timers end and no request is served, `wakes` of them in a row so far.

    None where there are no timers either, and nothing else will happen.
    """
    waiting = {service: count for service, count in unfinished.items() if count}
    if wakes is None:
        raise ValueError(
            f"requests wait for ever: {waiting} unfinished and nothing is going to happen"
        )
    if wakes > MOST_WAKES:
        raise ValueError(
            f"requests wait for ever: {waiting} unfinished and {wakes} wake-ups in a row, the last"
            f" at {now_s:.3f} s, have served no request; engine.horizon_s ends a run at a time"
        )


def refuse_gpus(wanted: Deployment, cluster: Cluster) -> None:
    """Raise ValueError where a deployment uses a GPU that is not there, or one twice."""
    used = [gpu for group in wanted.groups for gpu in group.gpus]
    if unknown := set(used) - set(cluster.gpus):
        count = len(cluster.gpus)
        raise ValueError(f"a deployment uses GPU {min(unknown)}, the cluster has {count}")
    if len(set(used)) < len(used):
        twice = next(gpu for gpu in used if used.count(gpu) > 1)
        raise ValueError(f"a deployment puts two groups on GPU {twice}")
