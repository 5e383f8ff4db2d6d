"""LLM applications of several kinds that arrive over time, each along the path of one run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from harness.costs.model_facts import model_facts
from harness.interface.apps import OUTSIDE, Apps, Backend, HostCache
from harness.interface.entities import ResourceId, Service, ServiceId, Work
from harness.interface.graph import Edges
from harness.interface.policies import CostModel
from harness.workloads.application_draws import DeadlineService, KindDraw
from harness.workloads.applications import (
    ApplicationKind,
    AppRun,
    DeclaredKind,
    UnitCalls,
    stored_application,
)
from harness.workloads.arrivals import Arrivals, ClosedLoop
from harness.workloads.call_ids import with_apps
from harness.workloads.settings import require_between, require_keys, require_positive
from harness.workloads.workload import Floats, Ints, Workload

TENANTS = ("kind", "application")
MOST_CONTEXT = 10**9
MOST_ADAPTERS = 10**5


class ApplicationMix:
    """Recipe of a workload of `applications` applications, of kinds drawn by the weights of `mix`.

    Units outside any LLM run on `backends`, by name, that are loaded when the first call needs them
    or a policy says so; units of other backends need no loading. `pools` has the capacity of each
    pool of backends, in its own unit.

    Kinds are stored ones (profiles/applications) or those `declared`, by name. `history` are the
    runs that are known before any is served.

    A deadline lies one of `deadline_scales`, drawn at random, times the seconds that known runs of
    its kind take alone, on average, after arrival; on `costs` and `tensor_parallel` GPUs. With
    `deadline_service` those seconds are a `share` of the longest known run of the kind, over the
    number of `divided_by` for it (1 where it has none), at so many seconds a token and with its
    calls one after the other. Its own run has no part in it: a deadline by that would tell a policy
    what is to come. Where `context_tokens` is None, the context is that of each model.

    With `kind_draw`, every seed of a run has the kinds and the deadline scales that a program in
    Python draws by `random.choices` from its `seed`: for each application its kind, by the weights
    of `mix` in the order of `order`, then one of two classes, then a scale where it has a deadline.

    With `adapters`, each application reads one of so many (`count`) drawn at random; with
    `contexts`, the KV of its own context. Host memory has room for `capacity` adapters, or
    `capacity_bytes` of contexts; one is loaded from disk in `load_s` (by token: `load_token_s`) and
    copied to the GPU in `copy_s` (`copy_token_s`).

    A prompt begins with the context of the LLM call before it in its application (the first call of
    the step before), as far as both are long enough: the most that can be shared. Prompts of the
    first step have nothing in common.
    """

    def __init__(
        self,
        *,
        applications: int,
        mix: Mapping[str, float],
        declared: Sequence[DeclaredKind],
        services: Mapping[str, str],
        arrivals: Arrivals,
        deadline_scales: Sequence[float],
        tenant: str,
        backends: Mapping[str, Mapping[str, Any]],
        pools: Mapping[str, float],
        context_tokens: int | None,
        max_output_tokens: int,
        tensor_parallel: int,
        costs: CostModel,
        adapters: Mapping[str, float] | None = None,
        contexts: Mapping[str, float] | None = None,
        kind_draw: Mapping[str, Any] | None = None,
        deadline_service: Mapping[str, Any] | None = None,
    ) -> None:
        """`services` maps the services of units to models; no `deadline_scales`: no deadlines."""
        scales = {f"deadline_scales[{nth}]": scale for nth, scale in enumerate(deadline_scales)}
        counts = {"applications": applications, "max_output_tokens": max_output_tokens}
        require_positive("workload", tensor_parallel=tensor_parallel, **counts, **scales)
        if tenant not in TENANTS:
            raise ValueError(f"workload.tenant={tenant} is none of {', '.join(TENANTS)}")
        _refuse_clients(arrivals)
        self._kinds = _kinds(mix, declared)
        self._backends = tuple(_backend(name, facts, pools) for name, facts in backends.items())
        self._pools, self._scales, self._tenant = dict(pools), tuple(deadline_scales), tenant
        self._weights = np.array([mix[kind.name] for kind in self._kinds]) / sum(mix.values())
        self._applications, self._arrivals = applications, arrivals
        self._services = _Services(self._kinds, services, context_tokens, max_output_tokens)
        self._alone, self.models = (costs, tensor_parallel), self._services.models
        self._adapters, self._contexts = _contents(adapters, contexts, len(self.models))
        self._kind_draw = KindDraw.of(kind_draw, mix)
        self._deadline_service = DeadlineService.of(deadline_service, mix, self._scales)
        of_kinds = {name: file for one in self._kinds for name, file in one.files.items()}
        self.files = {**arrivals.files, **of_kinds}

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; another rate has the same applications."""
        rng, arriving, due = (np.random.default_rng([seed, 31, part]) for part in range(3))
        kind = rng.choice(len(self._kinds), self._applications, p=self._weights)
        scales = due.choice(self._scales, len(kind)) if self._scales else np.full(len(kind), np.nan)
        if self._kind_draw:
            names = [one.name for one in self._kinds]
            kind, scales = self._kind_draw.drawn(names, len(kind), self._scales)
        runs = [self._kinds[number].draw(rng) for number in kind]
        arrival_s = self._arrivals.draw(self._applications, arriving)
        deadline_s = np.full(len(kind), np.nan)
        if self._scales:
            kinds = range(len(self._kinds))
            base_s = self._deadline_service.seconds if self._deadline_service else self._alone_s
            deadline_s = (
                arrival_s + np.array([base_s(self._kinds[it]) for it in kinds])[kind] * scales
            )
        return self._built(kind, runs, arrival_s, deadline_s, seed)

    def history(self, seed: int) -> Workload:
        """The runs that are known before, each an application at time 0; no seed changes them."""
        past = [(number, run) for number, one in enumerate(self._kinds) for run in one.past()]
        kind = np.array([number for number, _ in past])
        nothing = np.zeros(len(past))
        return self._built(kind, [run for _, run in past], nothing, nothing + np.nan, seed=0)

    def _built(
        self, kind: Ints, runs: Sequence[AppRun], arrival_s: Floats, deadline_s: Floats, seed: int
    ) -> Workload:
        calls = _Calls(runs, self._services.places, self._backends)
        of = calls.columns
        service, app, prompt_tokens = of["service"], of["app"], of["prompt_tokens"]
        names = tuple(one.name for one in self._kinds)
        is_kind = self._tenant == "kind"
        load = Workload(
            services=self._services.listed,
            service=service,
            arrival_s=arrival_s[app],
            prompt_tokens=prompt_tokens,
            output_tokens=of["output_tokens"],
            max_output_tokens=self._services.limits(service, prompt_tokens, of["output_tokens"]),
            app=app,
            deadline_s=deadline_s[app],
            tenants=names if is_kind else tuple(f"application {it}" for it in range(len(runs))),
            tenant=(kind if is_kind else np.arange(len(runs)))[app],
            edges=calls.edges,
            own_tokens=prompt_tokens,
            prefix=of["prefix"],
            prefix_tokens=of["prefix_tokens"],
        )
        apps = Apps(
            kinds=names,
            kind=kind,
            units=tuple(calls.units),
            unit=of["unit"],
            instance=of["instance"],
            external_s=of["external_s"],
            backends=self._backends,
            backend=of["backend"] if self._backends else np.zeros(0, np.int64),
            pools=self._pools if self._backends else {},
        )
        return with_apps(load, replace(apps, host_cache=self._host_cache(load, apps, seed)), seed)

    def _host_cache(self, load: Workload, apps: Apps, seed: int) -> HostCache | None:
        """What calls of these applications read, as they are numbered here."""
        count, is_llm = len(apps.kind), ~apps.outside
        if self._adapters:
            adapters = int(self._adapters["count"])
            content = np.random.default_rng([seed, 31, 3]).integers(adapters, size=count)
            return HostCache(
                names=tuple(ResourceId(f"adapter {number}") for number in range(adapters)),
                content=content,
                size=np.ones(adapters),
                reads=is_llm.astype(np.int64),
                capacity=self._adapters["capacity"],
                load_s=self._adapters["load_s"],
                copy_s=self._adapters["copy_s"],
                grows=False,
            )
        if not self._contexts:
            return None
        token_bytes = load.services[0].kv_bytes_per_token
        return HostCache(
            names=tuple(ResourceId(f"context of {app}") for app in range(count)),
            content=np.arange(count),
            size=np.zeros(count),
            reads=np.where(is_llm & (load.prefix >= 0), load.prefix_tokens, 0),
            capacity=float(self._contexts["capacity_bytes"] // token_bytes),
            load_s=self._contexts["load_token_s"],
            copy_s=self._contexts["copy_token_s"],
            grows=True,
        )

    def _alone_s(self, kind: ApplicationKind) -> float:
        """Mean seconds of the known runs of a kind, each alone and with KV for all of its calls."""
        return float(np.mean([sum(map(self._step_s, run)) for run in kind.past()]))

    def _step_s(self, step: Sequence[UnitCalls]) -> float:
        """Seconds of units that start together: the calls of a service are one batch."""
        batches: dict[str, list[tuple[int, int]]] = {}
        longest_s = max((s for unit in step for s in unit.external_s), default=0.0)
        for unit in step:
            pairs = zip(unit.prompt_tokens, unit.output_tokens, strict=True)
            batches.setdefault(unit.service, []).extend(pairs)
        costs, tensor_parallel = self._alone
        for service, calls in batches.items():
            if calls:
                model = ServiceId(self._services.model_of[service])
                longest_s = max(longest_s, batch_s(costs, model, tensor_parallel, calls))
        return longest_s


def _refuse_clients(arrivals: Arrivals) -> None:
    """Raise ValueError for a closed loop, in which any answer lets a client send."""
    if isinstance(arrivals, ClosedLoop):
        raise ValueError(
            "workload/arrivals=closed_loop sends single requests; calls of applications wait for "
            "the answers of certain others"
        )


def _kinds(mix: Mapping[str, float], declared: Sequence[DeclaredKind]) -> list[ApplicationKind]:
    """Those with a weight, declared or stored. Raises ValueError for unknown ones and no weight."""
    require_between("workload.mix", 0, 1e9, **mix)
    if not any(mix.values()):
        raise ValueError(f"workload.mix={dict(mix)} gives no application a weight")
    own = {application.name: application for application in declared}
    return [own.get(name) or stored_application(name) for name, weight in mix.items() if weight]


def _settings(
    name: str, given: Mapping[str, float] | None, keys: Sequence[str]
) -> Mapping[str, float]:
    """Settings of a scenario, none where none are given. ValueError for other keys and numbers."""
    if not given:
        return {}
    require_keys(f"workload.{name}", given, keys)
    require_between(f"workload.{name}", 0, 1e15, **given)
    return given


def _contents(
    adapters: Mapping[str, float] | None, contexts: Mapping[str, float] | None, models: int
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Settings of what calls read from host memory. ValueError for what cannot be."""
    of_adapters = _settings("adapters", adapters, ("count", "capacity", "load_s", "copy_s"))
    keys = ("capacity_bytes", "load_token_s", "copy_token_s")
    of_contexts = _settings("contexts", contexts, keys)
    if of_adapters:
        count = of_adapters["count"]
        if count != int(count) or not 1 <= count <= MOST_ADAPTERS:
            raise ValueError(
                f"workload.adapters.count={count:g} is no whole number between 1 and "
                f"{MOST_ADAPTERS:,}"
            )
    if of_adapters and of_contexts:
        raise ValueError("workload.adapters and workload.contexts: a run has one of them")
    if of_contexts and models != 1:
        raise ValueError(f"workload.contexts needs one model, not {models}")
    return of_adapters, of_contexts


def _backend(name: str, facts: Mapping[str, Any], pools: Mapping[str, float]) -> Backend:
    """A backend of a scenario. ValueError for unknown keys, seconds below 0 and a missing pool."""
    known = {"pool", "load_s", "size", "per_application"}
    missing = {"pool", "load_s"} - set(facts)
    if wrong := sorted(set(facts) - known) or sorted(missing):
        raise ValueError(
            f"workload.backends.{name} {'lacks' if missing else 'has'} {wrong[0]}; its keys are "
            "pool, load_s, and where they differ size (1) and per_application (false)"
        )
    backend = Backend(name=name, **facts)
    require_between(f"workload.backends.{name}", 0, 1e9, load_s=backend.load_s, size=backend.size)
    if backend.size > pools.get(backend.pool, 0.0):
        raise ValueError(
            f"workload.backends.{name}.size is {backend.size:g}, and workload.pools gives "
            f"{backend.pool} {pools.get(backend.pool, 0.0):g}"
        )
    return backend


class _Services:
    """The models that a mix asks; where it needs it, the last service is outside any LLM."""

    def __init__(
        self,
        kinds: Sequence[ApplicationKind],
        model_of: Mapping[str, str],
        context_tokens: int | None,
        max_output_tokens: int,
    ) -> None:
        for kind in kinds:
            for service in sorted(kind.services - set(model_of)):
                raise ValueError(
                    f"application {kind.name!r} calls {service!r}, which "
                    f"workload.services={dict(model_of)} lacks"
                )
        asked = {model_of[name] for kind in kinds for name in kind.services}
        self.model_of = model_of
        self.models = tuple(model for model in dict.fromkeys(model_of.values()) if model in asked)
        self.listed = tuple(
            Service(
                ServiceId(facts.name),
                facts.kv_bytes_per_token,
                context_tokens or facts.max_context_tokens,
            )
            for facts in map(model_facts, self.models)
        )
        self.places = {
            name: self.models.index(model) for name, model in model_of.items() if model in asked
        }
        if any(kind.has_outside for kind in kinds):
            self.listed += (Service(OUTSIDE, 0, MOST_CONTEXT),)
            self.places[""] = len(self.models)
        self._max_output_tokens = max_output_tokens
        self._room = np.array([one.max_context_tokens for one in self.listed])

    def limits(self, service: Ints, prompt_tokens: Ints, output_tokens: Ints) -> Ints:
        """Most tokens of every answer. ValueError for a call that exceeds context or limit."""
        room = self._room[service]
        for name, most, used in (
            ("context_tokens", room, prompt_tokens + output_tokens),
            ("max_output_tokens", np.full_like(room, self._max_output_tokens), output_tokens),
        ):
            if (used > most).any():
                row = int(np.argmax(used > most))
                raise ValueError(
                    f"a call of {prompt_tokens[row]} prompt and {output_tokens[row]} answer tokens "
                    f"exceeds workload.{name}, {most[row]}"
                )
        limits = np.minimum(self._max_output_tokens, room - prompt_tokens)
        return np.where(room == MOST_CONTEXT, 1, limits)


class _Call(NamedTuple):
    """A row of a workload of applications."""

    app: int
    unit: int
    instance: int
    service: int
    backend: int
    prompt_tokens: int
    output_tokens: int
    external_s: float
    prefix: int = -1
    prefix_tokens: int = 0

    def shares(self, number: int, earlier: "_Call") -> "_Call":
        """The same, which begins with the context of an earlier call of the same model."""
        context = earlier.prompt_tokens + earlier.output_tokens
        return self._replace(prefix=number, prefix_tokens=min(context, self.prompt_tokens))


class _Calls:
    """Calls of all applications; those of a step wait for all of the step before it."""

    def __init__(
        self, runs: Sequence[AppRun], places: Mapping[str, int], backends: Sequence[Backend]
    ) -> None:
        self._places, self._instances = places, 0
        self._backends = {backend.name: number for number, backend in enumerate(backends)}
        self.units: dict[str, int] = {}
        calls: list[_Call] = []
        edges: list[tuple[int, int]] = []
        for app, run in enumerate(runs):
            before, earlier = range(0), -1
            for step in run:
                first = len(calls)
                for call in (call for unit in step for call in self._of_unit(unit, app)):
                    is_shared = earlier >= 0 and call.service == calls[earlier].service
                    calls.append(call.shares(earlier, calls[earlier]) if is_shared else call)
                these = range(first, len(calls))
                earlier = next((call for call in these if isnan(calls[call].external_s)), earlier)
                edges += product(before, these)
                before = these
        self.columns = dict(
            zip(_Call._fields, map(np.array, zip(*calls, strict=True)), strict=True)
        )
        parent, child = np.array(edges, np.int64).reshape(-1, 2).T
        # Prompts are whole from the start.
        self.edges = Edges(parent, child, np.zeros(len(parent), np.bool_))

    def _of_unit(self, unit: UnitCalls, app: int) -> Iterator[_Call]:
        count = len(unit.external_s) or len(unit.prompt_tokens)
        number, instance = self.units.setdefault(unit.unit, len(self.units)), self._instances
        self._instances += 1
        backend = self._backends.get(unit.backend, -1)
        of_unit = partial(_Call, app, number, instance, self._places[unit.service], backend)
        prompts, outputs = unit.prompt_tokens or (1,) * count, unit.output_tokens or (1,) * count
        return map(of_unit, prompts, outputs, unit.external_s or (np.nan,) * count)


def batch_s(
    costs: CostModel, service: ServiceId, tensor_parallel: int, calls: Sequence[tuple[int, int]]
) -> float:
    """Seconds of calls that are one batch from start to end; prompt and answer tokens of each."""
    prompts = np.array([prompt for prompt, _ in calls])
    whole = Work(len(calls), int(prompts.sum()), int(prompts.sum()), float((prompts**2).sum()))
    seconds = costs.iteration_s(service, tensor_parallel, whole)
    for steps, work in _decodes(calls):
        seconds += steps * costs.iteration_s(service, tensor_parallel, work)
    return seconds


def _decodes(calls: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Work]]:
    """Decodes between one answer's end and the next: their number, and one half way."""
    left = sorted(calls, key=lambda call: call[1])
    done = 1
    while left:
        steps, until = left[0][1] - done, left[0][1]
        contexts = [prompt + done + steps // 2 for prompt, _ in left]
        if steps:
            yield (
                steps,
                Work(
                    decode_requests=len(left),
                    context_tokens=sum(contexts),
                    longest_tokens=max(contexts),
                ),
            )
        done, left = until, [call for call in left if call[1] > until]
