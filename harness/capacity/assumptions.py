"""What a plan assumes, in lines that are printed before it is searched."""

from collections.abc import Mapping, Sequence

from harness.capacity.grid import Trial
from harness.capacity.question import MOST_REQUESTS, CapacityQuestion, Prepared
from harness.capacity.settings import stated_by_policies
from harness.costs.model_names import shown_name
from harness.runs.building import cell_of
from harness.workloads.recorded import Trace

PREDICTIONS = "PREDICTIONS"
"""What a policy requires that orders by predicted lengths."""


def assumptions(asked: CapacityQuestion, ready: Prepared) -> list[str]:
    """Requests, objectives, GPUs, settings, lengths and seconds. ValueError for a bad policy."""
    return [
        _requests(ready),
        *_reuse(ready),
        "objectives: "
        + ", ".join(one.text for one in ready.problem.objectives)
        + ", over all requests; one that is not answered is infinitely late",
        *_gpus(asked, ready),
        *_settings(ready),
        _lengths(ready),
        f"seconds: {_seconds(ready)}",
    ]


def _requests(ready: Prepared) -> str:
    """How many are served, and of how many."""
    load, recipe, of = ready.load, ready.first.workload_factory, ""
    is_drawn = isinstance(recipe, Trace) and not recipe.is_replay
    if ready.there > load.requests:
        which = "the first" if is_drawn else "those around the busiest minute"
        of = f" of {ready.there:,}, {which} (--requests; {MOST_REQUESTS:,} take about a minute)"
    left = f", {load.left_out:,} of the file too long and not served" if load.left_out else ""
    prompts, answers = (total / load.requests for total in (load.prompt_tokens, load.output_tokens))
    notes = [*recipe.build(ready.first.seed).notes]
    if is_drawn:
        notes.append(f"arrivals are one draw (seed {ready.first.seed}), as if it was the trace")
    return (
        f"requests: {load.requests:,}{of}{left}, mean prompt {prompts:,.0f} and answer "
        f"{answers:,.0f} tokens; the models are loaded and idle when the first one comes; "
        f"{'; '.join(notes)}"
    )


def _reuse(ready: Prepared) -> list[str]:
    """Whether the KV of prompts that begin alike is used again; nothing where none is known to."""
    load = ready.first.workload_factory.build(ready.first.seed)
    shared = 0 if load.prefix_tokens is None else load.prefix_tokens.sum()
    if not shared:
        return []
    share = shared / load.prompt_tokens.sum()
    caches = "on" if getattr(ready.first.engine, "prefix_caching", False) else "off"
    return [
        f"prefix caching: {caches} (engine.prefix_caching); {share:.0%} of the prompt tokens begin "
        "as those of an earlier request here; the caches are empty when the first one comes"
    ]


def _gpus(asked: CapacityQuestion, ready: Prepared) -> list[str]:
    """Machines, and what is assumed of several."""
    machines = ", ".join(f"{gpu} ({count} a machine)" for gpu, count in ready.site.machines.items())
    fixed = "" if asked.replicas is None else f", {asked.replicas} replicas"
    return [
        f"GPUs: {machines}, at most {asked.most_gpus} in all{fixed}; a replica lies within a "
        "machine; to dispatch a request costs nothing, also to another machine",
        "assumed: what keeps the objectives with so many replicas keeps them with more",
    ]


def _settings(ready: Prepared) -> list[str]:
    """The values that are tried, and limits that policies have of their own."""
    of = ready.candidates
    degrees = ", ".join(str(it) for it in sorted({one.tensor_parallel for one in of}))
    experts = " (experts split by tensor or whole)" if any(it.expert_parallel for it in of) else ""
    tokens, requests = (
        ", ".join(f"{it:,}" for it in sorted(numbers))
        for numbers in (
            {one.max_num_batched_tokens for one in of},
            {one.max_num_seqs for one in of},
        )
    )
    policies, dispatch = (
        ", ".join(dict.fromkeys(names))
        for names in ([one.policy for one in of], [one.dispatch for one in of])
    )
    said = (
        f"settings: {len(of)}: tensor parallel {degrees}{experts}; max_num_batched_tokens {tokens};"
        f" max_num_seqs {requests}; policies {policies}; dispatch {dispatch}"
    )
    return [said, *stated_by_policies(ready.site.bases)]


def _lengths(ready: Prepared) -> str:
    """Which policies are told lengths of answers, and by what."""
    first = {one.policy: one for one in reversed(ready.candidates)}
    predictor = ready.first.config["predictor"]
    assert isinstance(predictor, Mapping)
    told = []
    for policy, one in first.items():
        cell = cell_of(ready.site.configuration(Trial(one, 1)))
        if PREDICTIONS in {it.name for it in cell.system.scheduling.requires}:
            told.append(policy)
    if not told:
        return "lengths: no policy here is told the length of an answer"
    known = "true lengths, the most that orders by length could have"
    what = known if predictor.get("name") == "oracle" else "predicted lengths"
    return f"lengths: {', '.join(told)} order by the predictor {predictor.get('name')}: {what}"


def _seconds(ready: Prepared) -> str:
    """What the seconds rest on at each split."""
    model = ready.first.workload_factory.models[0]
    labels: dict[str, list[str]] = {}
    for one in _splits(ready):
        costs = cell_of(ready.site.configuration(one)).costs
        label = costs.label(model, one.candidate.tensor_parallel).partition("; ")[0]
        place = f"tensor parallel {one.candidate.tensor_parallel}"
        labels.setdefault(f"{one.candidate.gpu}, {label}", []).append(place)
    each = (f"{label} ({', '.join(places)})" for label, places in labels.items())
    return f"simulated, {shown_name(model)} on {'; '.join(each)}"


def _splits(ready: Prepared) -> Sequence[Trial]:
    """The first candidate of each split."""
    found: dict[tuple[str, int], Trial] = {}
    for one in ready.candidates:
        found.setdefault((one.gpu, one.tensor_parallel), Trial(one, 1))
    return [*found.values()]
