"""What a planner estimates is left to do: every unfinished call with a sampled output length."""

from collections.abc import Mapping

import numpy as np

from harness.interface.entities import ServiceId
from harness.interface.graph import NOBODY, Edges, Graph
from harness.interface.tables import CallTable, Floats, Ints
from harness.interface.views import ClusterView
from harness.planning.forecast import Load
from harness.predictors.ecdf import Ecdf, output_lengths


def estimated_workloads(
    view: ClusterView,
    lengths: Mapping[ServiceId, Ecdf],
    rngs: Mapping[ServiceId, np.random.Generator],
) -> dict[ServiceId, Load]:
    """Every unfinished request and call to come, per service, with a estimated output length.

    That is the predicted one, or where nothing is predicted one sampled from the `lengths` of its
    service by its generator. The prompt of a call to come contains the estimated answers that will
    be carried to it. Raises ValueError where calls of one service wait for each other in another
    way than one by one.
    """
    open_calls = {service: view.unfinished(service) for service in view.services}
    to_come = {service: view.to_come(service) for service in view.services}
    ids = {s: np.concatenate([open_calls[s].id, to_come[s].id]) for s in view.services}
    count = 1 + max((int(i.max()) for i in ids.values() if len(i)), default=-1)
    prompt, generated, answer, service_of = (np.zeros(count, np.int64) for _ in range(4))
    for index, (service, facts) in enumerate(view.services.items()):
        table = open_calls[service]
        service_of[ids[service]] = index
        prompt[table.id] = table.prompt_tokens
        generated[table.id] = table.generated_tokens
        sampled = output_lengths(
            lengths[service],
            table.prompt_tokens,
            max_output_tokens=table.max_output_tokens,
            max_context_tokens=facts.max_context_tokens,
            rng=rngs[service],
        )
        estimated = _known_or(table.predicted_mean_tokens, sampled)
        answer[table.id] = np.maximum(estimated, table.generated_tokens + 1)
    edges = view.edges
    for service, calls in to_come.items():
        sampled = lengths[service].sample(len(calls.id), rngs[service])
        answer[calls.id] = _known_or(calls.predicted_mean_tokens, sampled)
        prompt[calls.id] = calls.own_tokens
    _carry(view, to_come, edges, prompt, answer)
    following = _chains(edges, service_of)
    return {
        service: _load(np.sort(ids[service]), prompt, generated, answer, following)
        for service in view.services
    }


def _known_or(predicted_tokens: Floats, sampled: Ints) -> Ints:
    """What is predicted, in whole tokens, else what was sampled."""
    known = ~np.isnan(predicted_tokens)
    estimated = sampled.copy()
    estimated[known] = np.rint(predicted_tokens[known]).astype(np.int64)
    return estimated


def edges_between(view: ClusterView) -> Ints:
    """Rows (id, id of one that waits for it) of calls to come that ask different services."""
    edges = view.edges
    service_of = {
        call: service
        for service in view.services
        for table in (view.unfinished(service), view.to_come(service))
        for call in table.id.tolist()
    }
    pairs = zip(edges.parent.tolist(), edges.child.tolist(), strict=True)
    kept = [pair for pair in pairs if service_of[pair[0]] != service_of[pair[1]]]
    return np.array(kept, np.int64).reshape(-1, 2)


def _carry(
    view: ClusterView,
    to_come: Mapping[ServiceId, CallTable],
    edges: Edges,
    prompt: Ints,
    answer: Ints,
) -> None:
    """Add carried answers to prompts and cut answers to their limits, in order of id."""
    limit, context = np.zeros_like(prompt), np.zeros_like(prompt)
    for service, calls in to_come.items():
        limit[calls.id] = calls.max_output_tokens
        context[calls.id] = view.services[service].max_context_tokens
    carried: dict[int, list[int]] = {}
    for parent, child in zip(edges.parent[edges.carries], edges.child[edges.carries], strict=True):
        carried.setdefault(int(child), []).append(int(parent))
    later = np.sort(np.concatenate([np.zeros(0, np.int64), *(c.id for c in to_come.values())]))
    for call in later.tolist():
        prompt[call] += sum(answer[parent] for parent in carried.get(call, []))
        answer[call] = max(1, min(answer[call], limit[call], context[call] - prompt[call]))


def _chains(edges: Edges, service_of: Ints) -> Ints:
    """The call that follows each within its service, or NOBODY."""
    chain = Graph(edges, service_of).chain
    within = service_of[edges.parent] == service_of[edges.child]
    if (loose := within & (chain[edges.parent] != edges.child)).any():
        row = int(np.argmax(loose))
        raise ValueError(
            f"r{edges.child[row]} waits for r{edges.parent[row]} of its own service, and one of "
            "the two for or with others: only chains of calls can be planned"
        )
    return chain


def _load(ids: Ints, prompt: Ints, generated: Ints, answer: Ints, following: Ints) -> Load:
    """The load of one service; ids ascend."""
    row = np.full(len(prompt) + 1, NOBODY)
    row[ids] = np.arange(len(ids))
    return Load(
        ids,
        prompt[ids],
        generated[ids],
        answer[ids],
        np.zeros(len(ids)),
        row[following[ids]] if len(ids) else np.zeros(0, np.int64),
    )
