"""What a run has to serve: arrays of requests, one entry each, and the services they call."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.model_facts import ModelFacts
from harness.interface.apps import OUTSIDE, Apps
from harness.interface.entities import Request, RequestId, Service, ServiceId, TenantId
from harness.interface.graph import Edges, no_edges
from harness.interface.tables import RequestTable

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_FACTS = (
    *("service", "app", "tenant", "prompt_tokens", "max_output_tokens", "deadline_s"),
    "priority",
)
"""Columns of what is known of a request when it arrives, besides its time."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests as columns, ordered by arrival; a request's id is its row.

    A request that waits for answers of others (`edges`) arrives when it has them; its `arrival_s`
    is when its application comes in, and `own_tokens` the part of its prompt known by then. The
    rest of its prompt are the answers carried to it. Without edges `own_tokens` may be left out.

    In a closed loop clients take the requests in order, each its next one `think_s` after its last
    was answered: `arrival_s` is when a client begins, and infinite for requests that are sent when
    another has been answered, which come last. Elsewhere `think_s` is None.

    A lower `priority` is the more urgent one; without the column all have 0.
    `service` and `tenant` index `services` and `tenants`. `output_tokens` is the truth: engines
    and oracle predictors read it, `facts` does not. `deadline_s` is NaN where there is none.
    `datasets` names every file behind the arrays with its sha256. `texts` are the prompts where
    they are known, else empty; only predictors read them, as they do `predicted_tokens`, lengths
    that came along with the requests (NaN, or no column, where there are none).

    The first `prefix_tokens` of a prompt are those of the context (prompt, then answer) of the
    request `prefix`, an earlier row or -1; no column where nothing is in common. So are declared a
    system prompt (the first request that has it), what an application or a session has said so far
    (the call before), and blocks of a trace that have one hash.

    `notes` say what was assumed or left out, for the reader of results.

    With `apps`, a call may run outside any LLM; it has one token of prompt and of answer, which
    mean nothing. The edges are then the path that each application takes, and policies see of it
    only calls that have arrived. Calls that wait for others come after all that wait for none, in
    an order that does not tell how many calls an application has: see `with_apps`.
    """

    services: tuple[Service, ...]
    service: Ints
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    max_output_tokens: Ints
    app: Ints
    deadline_s: Floats
    tenants: tuple[str, ...] = ("",)
    tenant: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    datasets: Mapping[str, str] = field(default_factory=dict)
    edges: Edges = field(default_factory=no_edges)
    own_tokens: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    texts: tuple[str, ...] = ()
    predicted_tokens: Floats = field(default_factory=lambda: np.zeros(0))
    priority: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    prefix: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    prefix_tokens: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    apps: Apps | None = None
    notes: tuple[str, ...] = ()
    think_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse rows that no engine could serve, by name."""
        if len(self.texts) not in (0, len(self)):
            raise ValueError(f"there are {len(self.texts)} texts of {len(self)} requests")
        if not len(self.prefix) == len(self.prefix_tokens) in (0, len(self)):
            raise ValueError(
                f"there are {len(self.prefix)} prefixes and {len(self.prefix_tokens)} lengths of"
                f" prefixes of {len(self)} requests"
            )
        if not len(self.edges):
            object.__setattr__(self, "own_tokens", self.prompt_tokens)
        self._refuse_edges()
        if self.apps is not None:
            refuse_apps(self, self.apps)
        if self.is_closed_loop:
            self._refuse_in_closed_loop()
        for broken, values, text in self._rules():
            if broken.any():
                row = int(np.argmax(broken))
                raise ValueError(f"request {row} {text.format(values[row])}")

    def _refuse_in_closed_loop(self) -> None:
        """Refuse what has no meaning where no request has a time before others are answered."""
        if len(self.edges) or self.apps is not None:
            raise ValueError(
                "in a closed loop a client sends the next request when any is answered, and these "
                "wait for the answers of certain others: leave one of the two out"
            )
        if not np.isnan(self.deadline_s).all():
            raise ValueError(
                "a deadline is a time, and in a closed loop no request has one before it is sent"
            )

    def _refuse_edges(self) -> None:
        """Refuse requests that wait for later ones, or for those of another time."""
        parent, child = self.edges.parent, self.edges.child
        if (parent >= child).any():
            row = int(child[np.argmax(parent >= child)])
            raise ValueError(f"request {row} waits for one that is not ahead of it")
        together = self.arrival_s[parent] == self.arrival_s[child]
        if not together.all():
            row = int(child[np.argmin(together)])
            raise ValueError(f"request {row} waits for one that came in at another time")

    def _rules(self) -> Iterator[tuple[NDArray[np.bool_], Ints | Floats, str]]:
        """What is broken in which rows, the value at fault, and what to say of it."""
        yield self.prompt_tokens < 1, self.prompt_tokens, "has {} prompt tokens"
        yield self.output_tokens < 1, self.output_tokens, "has {} output tokens"
        lost = ~np.isfinite(self.arrival_s)
        if self.is_closed_loop:
            lost[1:] &= self.arrival_s[1:] != np.inf
        yield lost, self.arrival_s, "arrives at {} s"
        yield (
            self.own_tokens + self.edges.carried(self.output_tokens) != self.prompt_tokens,
            self.prompt_tokens,
            "has {} prompt tokens, which are not its own and those carried to it",
        )
        limits = np.array([s.max_context_tokens for s in self.services])[self.service]
        longest = self.own_tokens + self.edges.carried(self.max_output_tokens)
        yield (
            longest + self.max_output_tokens > limits,
            longest,
            "with {} prompt tokens and its output limit exceeds the context of its service",
        )
        yield (
            self.output_tokens > self.max_output_tokens,
            self.output_tokens,
            "has {} output tokens, more than its limit",
        )
        own_time = np.ones(len(self), np.bool_)
        if self.apps is not None:
            own_time[self.edges.child] = False
        early = np.zeros(len(self), np.bool_)
        own_s = self.arrival_s[own_time]
        early[own_time] = np.concatenate([[False], own_s[1:] < own_s[:-1]])[: len(own_s)]
        yield (
            early,
            self.arrival_s,
            "arrives at {} s, before the request ahead of it",
        )
        if len(self.prefix):
            yield from self._prefix_rules()

    def _prefix_rules(self) -> Iterator[tuple[NDArray[np.bool_], Ints | Floats, str]]:
        """The same of declared prefixes."""
        prefix, tokens = self.prefix, self.prefix_tokens
        is_wrong = (prefix < -1) | (prefix >= np.arange(len(self)))
        yield is_wrong, prefix, "begins like request {}, which is not ahead of it"
        yield (
            (tokens < 0) | (tokens > self.prompt_tokens),
            tokens,
            ("shares {} tokens, which its prompt does not have"),
        )
        context = np.where(prefix < 0, 0, (self.prompt_tokens + self.output_tokens)[prefix])
        yield tokens > context, tokens, "shares {} tokens, which the other's context does not have"

    def later(self, seconds: float) -> "Workload":
        """The same, every arrival and deadline so many seconds later."""
        if not seconds:
            return self
        return replace(
            self, arrival_s=self.arrival_s + seconds, deadline_s=self.deadline_s + seconds
        )

    @property
    def is_closed_loop(self) -> bool:
        """Whether clients send requests when others have been answered, in the order of rows."""
        return self.think_s is not None

    @property
    def answers_release(self) -> bool:
        """Whether requests come when others have been answered."""
        return len(self.edges) > 0 or self.is_closed_loop

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def facts(self, request: int) -> Request:
        """What is known of a request when it arrives."""
        return self.facts_at(request, self.arrival_s.item(request))

    def facts_at(self, request: int, arrival_s: float) -> Request:
        """The same of one that arrives at another time, when others have been answered."""
        (found,) = self.facts_of(np.array([request]), np.array([arrival_s]))
        return found

    def facts_of(self, requests: Ints, arrival_s: Floats) -> Iterator[Request]:
        """The same of several, column by column: a prediction is asked for each request."""
        columns = (column.tolist() for column in self._known(requests).values())
        return map(self._request, requests.tolist(), arrival_s.tolist(), *columns)

    def table(
        self, requests: Ints, predicted_mean_tokens: Floats, services: tuple[ServiceId, ...]
    ) -> RequestTable:
        """What policies may see of several when they arrive, the `services` being the first."""
        known: dict[str, Any] = self._known(requests)
        del known["tenant"]
        nothing = np.zeros(len(requests), np.int64)
        return RequestTable(
            id=requests,
            arrival_s=self.arrival_s[requests],
            generated_tokens=nothing,
            kv_tokens=nothing,
            gpu_s=np.zeros(len(requests)),
            predicted_mean_tokens=predicted_mean_tokens,
            services=services,
            **known,
        )

    def _known(self, requests: Ints) -> dict[str, Ints | Floats]:
        """Columns of what is known of several when they arrive; zeros of those not given."""
        given = {name: getattr(self, name) for name in _FACTS}
        none = np.zeros(len(requests), np.int64)
        return {name: it[requests] if len(it) else none for name, it in given.items()}

    def _request(self, request: int, arrival_s: float, *values: Any) -> Request:
        """Of what the columns hold of it."""
        known = dict(zip(_FACTS, values, strict=True))
        return Request(
            id=RequestId(request),
            arrival_s=arrival_s,
            service=self.services[known.pop("service")].id,
            tenant=TenantId(self.tenants[known.pop("tenant")]),
            deadline_s=None if math.isnan(due_s := known.pop("deadline_s")) else due_s,
            unit="" if self.apps is None else self.apps.units[self.apps.unit.item(request)],
            **known,
        )

    def service_of(self, request: int) -> ServiceId:
        """The service that a request calls."""
        return self.services[self.service.item(request)].id


def services_of(models: Iterable[ModelFacts]) -> tuple[Service, ...]:
    """A service for each of these models, under its name."""
    return tuple(
        Service(ServiceId(it.name), it.kv_bytes_per_token, it.max_context_tokens) for it in models
    )


def refuse_apps(load: Workload, apps: Apps) -> None:
    """Raise ValueError where the columns of applications do not fit the calls."""
    _refuse_columns(load, apps)
    if any(service.id == OUTSIDE for service in load.services[:-1]):
        raise ValueError(f"the service {OUTSIDE} is not the last of {len(load.services)}")
    for broken, values, text in _app_rules(load, apps):
        if broken.any():
            row = int(np.argmax(broken))
            raise ValueError(
                f"call {row} of application {load.app[row]} {text.format(values[row])}"
            )


def _refuse_columns(load: Workload, apps: Apps) -> None:
    """Raise ValueError for columns of another length, and numbers that name nothing."""
    count = int(load.app.max(initial=-1)) + 1
    if len(apps.kind) != count:
        raise ValueError(f"there are {len(apps.kind)} kinds of {count} applications")
    for name, numbers, names in (("kind", apps.kind, apps.kinds), ("unit", apps.unit, apps.units)):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(names):
            raise ValueError(f"a {name} is {numbers.max()}, there are {len(names)} names of it")
    for name in ("unit", "instance", "external_s"):
        if len(getattr(apps, name)) != len(load):
            raise ValueError(f"{name} has {len(getattr(apps, name))} rows of {len(load)} calls")
    for name, numbers in (("application", load.app), ("run of a unit", apps.instance)):
        if len(numbers) and (unused := np.flatnonzero(np.bincount(numbers) == 0)).size:
            raise ValueError(f"{name} {unused[0]} has no call")


def _app_rules(
    load: Workload, apps: Apps
) -> Iterator[tuple[NDArray[np.bool_], Ints | Floats, str]]:
    """What is broken in which calls, the value at fault, and what to say of it."""
    is_last = load.services[-1].id == OUTSIDE
    asks_none = (load.service == len(load.services) - 1) & is_last
    seconds = apps.external_s
    yield apps.outside & ~asks_none, seconds, "takes {} s outside any LLM and names a service"
    yield asks_none & ~apps.outside, seconds, "names no service and takes {} s outside any LLM"
    wrong = apps.outside & ~((seconds > 0) & (seconds < np.inf))
    yield wrong, seconds, "takes {} s outside any LLM, it must be above 0 and finite"
    yield load.deadline_s < load.arrival_s, load.deadline_s, "has a deadline of {} s before arrival"
    waits = np.bincount(load.edges.child, minlength=len(load))
    behind = (waits == 0) & (np.maximum.accumulate(waits) > 0)
    text = "waits for none and comes after one that waits: ids would tell the number of calls"
    yield behind, waits, text
    _, first = np.unique(apps.instance, return_index=True)
    alike = first[np.searchsorted(apps.instance[first], apps.instance)]
    # Two sets of parents are equal where as many parents have the same sum of squares, nearly.
    parents = load.edges.parent + 1
    sums = np.bincount(load.edges.child, parents.astype(np.float64) ** 2, minlength=len(load))
    for name, column in (
        ("application", load.app),
        ("unit", apps.unit),
        ("number of calls that it waits for", waits),
        ("set of calls that it waits for", sums),
    ):
        yield (
            column != column[alike],
            apps.instance,
            f"is of run {{}} of a unit, with another {name}",
        )
