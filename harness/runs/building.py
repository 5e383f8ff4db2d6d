"""A cell from its configuration: the system, the workload, the folder of the result."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import numpy as np

from harness.config import inputs
from harness.config.build import TARGET, build
from harness.config.paths import PROFILES
from harness.config.ranges_of_units import check_range
from harness.costs.gpu_facts import gpu_facts
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.uncertainty import DrawnCosts
from harness.engines.engine import WITH_PREFIX_CACHING, Engine, needs_of
from harness.engines.host_memory import HostMemory
from harness.interface.apps import Apps, Backend
from harness.interface.decisions import StaticBatching
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import (
    Capability,
    DispatchPolicy,
    PlacementPolicy,
    PrewarmPolicy,
    SchedulingPolicy,
    System,
)
from harness.planning.application_history import ApplicationHistory, UnitRun
from harness.planning.forecast import Window
from harness.runs.cells import Cell, PredictorFactory, WorkloadFactory
from harness.runs.config import HardwareConfig, RunConfig
from harness.runs.matrix import ALONE, Place
from harness.runs.own_context import (
    UNKNOWN_TOKENS,
    contexts_of,
    follow_context,
    limit_of,
    state_requests,
    with_limit,
)
from harness.runs.run_key import key_of, run_id
from harness.workloads.ecdf import LENGTH_SAMPLES, Ecdf, length_files, load_lengths
from harness.workloads.workload import Workload

_STATIC = f"{StaticBatching.__module__}.{StaticBatching.__qualname__}"


@runtime_checkable
class HasHistory(Protocol):
    """A recipe of a workload that also makes the requests of the time before it."""

    def history(self, seed: int) -> Workload:
        """Same seed, same requests, of the services of the workload of that seed."""


@runtime_checkable
class SharesPrefixes(Protocol):
    """A recipe that knows whether its requests say which prompts begin alike."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether they do."""


def window_of(past: Workload) -> Window:
    """Requests that have been answered, as policies that plan from a history read them."""
    unknown, services = np.full(len(past), np.nan), tuple(it.id for it in past.services)
    table = past.table(np.arange(len(past)), unknown, services)
    return Window(table, past.output_tokens)


def runs_of(past: Workload, apps: Apps) -> ApplicationHistory:
    """Applications that have ended, as policies that estimate from recorded runs read them.

    Runs of units were numbered in the order in which they started.
    """
    of_app: list[list[UnitRun]] = [[] for _ in apps.kind]
    backends: dict[str, dict[str, Backend]] = {kind: {} for kind in apps.kinds}
    order = np.argsort(apps.instance, kind="stable")
    ends = np.flatnonzero(np.diff(apps.instance[order])) + 1
    for calls in np.split(order, ends):
        name = apps.units[apps.unit[calls[0]]]
        if apps.backends and apps.backend[calls[0]] >= 0:
            kind = apps.kinds[apps.kind[past.app[calls[0]]]]
            backends[kind][name] = apps.backends[apps.backend[calls[0]]]
        if apps.outside[calls[0]]:
            unit = UnitRun(name, external_s=float(apps.external_s[calls].sum()))
        else:
            prompts, outputs = past.prompt_tokens[calls], past.output_tokens[calls]
            unit = UnitRun(name, tuple(prompts.tolist()), tuple(outputs.tolist()))
        of_app[past.app[calls[0]]].append(unit)
    runs: dict[str, list[list[UnitRun]]] = {kind: [] for kind in apps.kinds}
    for number, run in zip(apps.kind.tolist(), of_app, strict=True):
        runs[apps.kinds[number]].append(run)
    return ApplicationHistory(runs, backends)


def cell_of(config: RunConfig, place: Place = ALONE) -> Cell:
    """Everything one cell needs; `place` is where it stands in a scenario.

    Raises ValueError for what does not fit together.
    """
    before = len(inputs.READ)
    cell = _cell(config, place)
    cell.named.refuse_unnamed(before)
    return cell


def _cell(config: RunConfig, place: Place) -> Cell:
    hardware, record, seed = config.hardware, config.record, config.seed
    costs = costs_of(config)
    workload_factory = _workload(config, costs)
    if followed := follow_context(tuple(workload_factory.models)):
        config, costs = _at_own_context(config, followed, workload_factory.build(seed))
        workload_factory = _workload(config, costs)
    models = workload_factory.models
    for model in models:
        costs.require(model)
    true = _drawn(costs, hardware.cost_draw, seed)
    past = _past(workload_factory, seed)
    shares = isinstance(workload_factory, SharesPrefixes) and workload_factory.shares_prefixes
    engine, system = _serving(config, models, past, believed=costs, true=true, shares=shares)
    predictor_factory = _predictor_factory(config.predictor, system)
    determines = config.determines
    believed = length_files(models) if _plans(config.system) else {}
    named = key_of(determines, engine, costs, workload_factory, predictor_factory, believed)
    # A variation is known as one, also where another command has run the same as its own cell.
    varied = {"varied": place.varied} if place.varied else {}
    run = run_id({**determines, **named.inputs(), **varied}, named.code)
    return Cell(
        named=named,
        config={**determines, "chosen": config.chosen, "varied": place.varied},
        setting=place.setting,
        varied=place.varied,
        folder=config.folder / run,
        workload_factory=workload_factory,
        predictor_factory=predictor_factory,
        system=system,
        engine=engine,
        costs=costs,
        gpus=hardware.gpu_count,
        seed=seed,
        keep_iterations=record.iterations or record.trace,
        keep_trace=record.trace,
    )


def _workload(config: RunConfig, costs: ProfileCosts) -> WorkloadFactory:
    """The recipe of the workload, for the KV that these costs leave."""
    offered = {"costs": costs, "kv_room": partial(_kv_room, config, costs)}
    factory: WorkloadFactory = build(
        config.workload, path="workload", offered=offered, kind=WorkloadFactory
    )
    return factory


def _at_own_context(
    config: RunConfig, models: tuple[str, ...], load: Workload
) -> tuple[RunConfig, ProfileCosts]:
    """Configuration and costs at the contexts of a load of models with windows or states."""
    contexts = contexts_of(load, models)
    window = config.hardware.window_at_tokens or contexts.typical_tokens
    costs = _costs(config, window_at_tokens=window)
    running = state_requests(costs, models, _degrees(config), contexts, limit_of(config))
    if not running:
        return config, costs
    costs = _costs(config, window_at_tokens=window, state_requests=running)
    return with_limit(config, running), costs


def _degrees(config: RunConfig) -> list[int]:
    """The tensor parallelism of the placement, or else all that the GPUs allow."""
    degree = config.system["placement"].get("tensor_parallel")
    degrees = [2**power for power in range(4) if 2**power <= config.hardware.gpu_count]
    return [degree] if isinstance(degree, int) else degrees


def _kv_room(config: RunConfig, costs: ProfileCosts, model: str) -> tuple[int, int]:
    """KV blocks of a group that serves a model alone, and tokens of a block; 0 blocks: unknown.

    At the tensor parallelism of the placement, or else the largest that the GPUs allow. Raises
    ValueError for a model that fits none of these.
    """
    service = ServiceId(model)
    asked = _degrees(config)
    is_given = isinstance(config.system["placement"].get("tensor_parallel"), int)
    blocks = max(costs.kv_blocks(service, it) for it in asked)
    if not blocks and (is_given or config.hardware.gpu_count <= asked[-1]):
        why = costs.unfit_because(service, asked[-1])
        raise ValueError(f"{model} does not fit {asked[-1]} GPUs: {why}")
    return blocks, costs.block_tokens(service)


def _past(workload: WorkloadFactory, seed: int) -> dict[str, object]:
    """What a workload offers to policies of the time before it, by the name of their argument."""
    if not isinstance(workload, HasHistory):
        return {}
    before = workload.history(seed)
    if before.apps is None:
        return {"history": window_of(before)}
    return {"applications": runs_of(before, before.apps)}


def costs_of(config: RunConfig) -> ProfileCosts:
    """Costs of the machine of a run's configuration, at the context that it states, if any."""
    return _costs(config, window_at_tokens=config.hardware.window_at_tokens or UNKNOWN_TOKENS)


def _costs(config: RunConfig, *, window_at_tokens: int, state_requests: int = 0) -> ProfileCosts:
    """Seconds and memory as the profile of a machine has them."""
    hardware = config.hardware
    tokens, requests = (config.engine.get(it) for it in ("max_num_batched_tokens", "max_num_seqs"))
    is_limited = isinstance(tokens, int) and isinstance(requests, int)
    return ProfileCosts(
        gpu=hardware.gpu,
        profile_dir=hardware.profile,
        memory_share=hardware.memory_share,
        parts=PARTS,
        replica_start_s=hardware.replica_start_s,
        engine_start_s=hardware.engine_start_s,
        weights_bytes_per_s=hardware.weights_bytes_per_s,
        kv_bytes=hardware.kv_bytes,
        block_tokens=hardware.block_tokens,
        window_at_tokens=window_at_tokens,
        sm_share_profile=hardware.sm_share_profile,
        engine=hardware.engine,
        roofline=hardware.roofline,
        expert_parallel=hardware.expert_parallel,
        kv_number_bytes=hardware.kv_number_bytes,
        limits=(tokens, requests) if is_limited else (None, None),
        state_requests=state_requests,
        scale_seconds=hardware.scale_seconds,
        scale_prompt_seconds=hardware.scale_prompt_seconds,
    )


def _drawn(costs: ProfileCosts, draw: int, seed: int) -> ProfileCosts | DrawnCosts:
    """The costs, or as they may truly be."""
    return DrawnCosts(costs, draw, seed) if draw else costs


def _host_memory(hardware: HardwareConfig) -> HostMemory:
    """What each GPU has of it, at the rate given or that of its data sheet."""
    check_range("hardware.host_kv_bytes", hardware.host_kv_bytes)
    rate = hardware.pcie_bytes_per_s
    if rate is None:
        rate = gpu_facts(hardware.gpu, PROFILES / hardware.profile).pcie_bytes_per_s
    return HostMemory(kv_bytes=hardware.host_kv_bytes, bytes_per_s=rate)


def _predictor_factory(node: Mapping[str, Any], system: System) -> PredictorFactory | None:
    """The factory of the predictor; None where a configuration has none.

    Raises ValueError where the policy needs predictions and there is no predictor.
    """
    named = {key: value for key, value in node.items() if key != "name"}
    if not named and Capability.PREDICTIONS in system.scheduling.requires:
        raise ValueError(
            f"policy {type(system.scheduling).__name__} orders by predicted lengths, and "
            f"predictor={node.get('name')} predicts none; predictor=oracle knows the true ones"
        )
    if not named:
        return None
    built: PredictorFactory = build(named, path="predictor", kind=PredictorFactory)
    return built


def _serving(
    config: RunConfig,
    models: Sequence[str],
    past: Mapping[str, object],
    *,
    believed: ProfileCosts,
    true: ProfileCosts | DrawnCosts,
    shares: bool,
) -> tuple[Engine, System]:
    """Engine and system. Iterations take `true` seconds; policies and planners believe others.

    `past` is the workload's history; `_engine_node` says when prefixes that it `shares` are cached.
    """
    system = config.system
    offered: dict[str, object] = {
        "costs": believed,
        "cluster": _cluster(config.hardware),
        "seed": config.seed,
        "host_memory": _host_memory(config.hardware),
        **past,
    }
    if _plans(system):
        offered["planner_costs"] = believed.with_parts(tuple(system["planner_parts"]))
        offered["lengths"] = _believed_lengths(models, system["withheld_lengths"], config.seed)
    built = System(
        name=system["name"],
        **{
            key: build(node, path=path, offered=offered, kind=kind)
            for key, path, node, kind in (
                ("scheduling", "policy", config.policy, SchedulingPolicy),
                ("dispatch", "system.dispatch", system["dispatch"], DispatchPolicy),
                ("placement", "system.placement", system["placement"], PlacementPolicy),
                ("prewarm", "system.prewarm", system.get("prewarm"), PrewarmPolicy),
            )
            if node is not None
        },
    )
    node = _engine_node(config, built, shares=shares)
    engine: Engine = build(node, path="engine", offered={**offered, "costs": true}, kind=Engine)
    return engine, built


def _engine_node(config: RunConfig, system: System, *, shares: bool) -> dict[str, Any]:
    """The engine with prefix caching on or off where its file leaves that open."""
    node = dict(config.engine)
    if node.get("prefix_caching", False) is None:
        fits = not needs_of(system) - WITH_PREFIX_CACHING and not _is_static(config.policy)
        node["prefix_caching"] = shares and fits
    return node


def _is_static(policy: Mapping[str, Any]) -> bool:
    """Whether a policy's batches run from start to end, which no prefix cache goes with."""
    rule = policy.get("rule")
    return isinstance(rule, Mapping) and rule.get(TARGET) == _STATIC


def _plans(system: Mapping[str, Any]) -> bool:
    """Whether a system has a planner, which knows costs and lengths of its own."""
    return "planner_parts" in system


def _believed_lengths(models: Sequence[str], withheld: float, seed: int) -> dict[str, Ecdf]:
    """What a planner knows of every model's answers: all samples but a share, drawn for each seed.

    Raises ValueError for a share that leaves nothing.
    """
    if not 0.0 <= withheld < 1.0:
        raise ValueError(f"system.withheld_lengths is {withheld}, it must be in [0, 1)")
    return {
        name: load_lengths(name)
        if withheld == 0.0
        else load_lengths(name).resampled(
            round((1.0 - withheld) * LENGTH_SAMPLES),
            np.random.default_rng([seed, 7, crc32(name.encode())]),
        )
        for name in models
    }


def _cluster(hardware: HardwareConfig) -> Cluster:
    count, island = hardware.gpu_count, hardware.nvlink_island
    if count < 1 or island < 1:
        raise ValueError(
            f"hardware has gpu_count={count} and nvlink_island={island}, both must be at least 1"
        )
    gpus = tuple(GpuId(i) for i in range(count))
    islands = tuple(frozenset(gpus[i : i + island]) for i in range(0, count, island))
    return Cluster(gpus, islands)
