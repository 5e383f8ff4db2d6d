"""Declared and recorded applications, by hand: paths, what is known before, refusals."""

import re
from typing import Any

import numpy as np
import pytest

from harness.interface.apps import OUTSIDE
from harness.interface.entities import ServiceId
from harness.planning.application_history import UnitRun
from harness.runs.building import runs_of
from harness.tests.support.serving import FlatCosts
from harness.workloads.application_mix import ApplicationMix, batch_s
from harness.workloads.applications import END, DeclaredKind, RecordedKind, Unit, UnitCalls
from harness.workloads.arrivals import AtOnce, ClosedLoop, Stretched

LLM: dict[str, Any] = {"service": "llm", "prompt_tokens": [100], "output_tokens": [9]}
WRITE = Unit(name="write", **LLM, calls=[2], then={"run": 1.0})
RUN = Unit(name="run", seconds=[2.5], then={"write": 0.25, END: 0.75})
CODE = DeclaredKind(name="code", first="write", units=[WRITE, RUN])
STORED = {"DM": 1.0, "CC": 1.0, "PE": 2.0, "LLMR": 1.0}


def made(**changes: Any) -> ApplicationMix:
    about: dict[str, Any] = {
        "applications": 40,
        "mix": {"code": 1.0},
        "declared": [CODE],
        "services": {"llm": "Llama-2-7b-hf"},
        "arrivals": AtOnce(),
        "deadline_scales": [],
        "tenant": "kind",
        "backends": {},
        "pools": {},
        "context_tokens": 12000,
        "max_output_tokens": 4096,
        "tensor_parallel": 1,
        "costs": FlatCosts(),
    }
    return ApplicationMix(**about | changes)


def test_a_declared_application_by_hand() -> None:
    """Two calls start together, the execution waits for both; a quarter of the runs go on."""
    load = made(applications=400).build(0)
    apps, edges = load.apps, load.edges
    assert apps is not None
    assert [service.id for service in load.services] == ["Llama-2-7b-hf", OUTSIDE]
    assert (apps.outside == (load.service == 1)).all()
    assert apps.external_s[apps.outside].tolist() == [2.5] * int(apps.outside.sum())
    assert load.max_output_tokens[~apps.outside].tolist() == [4096] * int((~apps.outside).sum())
    first = np.flatnonzero(apps.instance == 0)
    (then,) = np.flatnonzero(apps.instance == 1)
    assert [apps.units[apps.unit[row]] for row in (*first, then)] == ["write", "write", "run"]
    assert edges.parent[edges.child == then].tolist() == first.tolist()
    rounds = np.bincount(load.app[apps.outside])
    assert rounds.mean() == pytest.approx(4 / 3, abs=0.1)


def test_a_prompt_begins_with_the_context_of_the_call_before_by_hand() -> None:
    """Prompts of 100 tokens in two calls, a run outside, prompts of 100 again: all of them."""
    load = made(applications=400).build(0)
    apps = load.apps
    assert apps is not None
    units = [np.flatnonzero(apps.instance == instance) for instance in np.unique(apps.instance)]
    for calls, tool, then in zip(units, units[1:], units[2:], strict=False):
        is_round = not apps.outside[calls[0]] and load.app[calls[0]] == load.app[then[0]]
        if is_round:
            assert load.prefix[tool].tolist() == [-1]
            assert load.prefix_tokens[then].tolist() == [100, 100]
            assert set(load.prefix[then].tolist()) < set(calls.tolist())
    assert (load.prefix_tokens[load.prefix < 0] == 0).all()
    assert (load.prefix >= 0).sum() == 2 * (apps.outside.sum() - 400)


def test_recorded_runs_are_either_known_or_served() -> None:
    runs = [[[UnitCalls("write", "llm", (length,), (1,))]] for length in (10, 11, 12, 13)]
    kind = RecordedKind("own", runs, {})
    rng = np.random.default_rng(0)
    drawn = {kind.draw(rng)[0][0].prompt_tokens[0] for _ in range(50)}
    assert drawn == {11, 13}
    assert [run[0][0].prompt_tokens[0] for run in kind.past()] == [10, 12]


def test_the_history_has_the_known_runs_of_every_kind() -> None:
    recipe = made(mix=STORED | {"code": 1.0})
    past = recipe.history(0)
    assert past.apps is not None
    runs = runs_of(past, past.apps).runs
    assert {kind: len(known) for kind, known in runs.items()} == {
        "DM": 35, "CC": 58, "PE": 46, "LLMR": 100, "code": 100,
    }  # fmt: skip
    assert runs["code"][0][:2] == [
        UnitRun("write", (100, 100), (9, 9)),
        UnitRun("run", external_s=2.5),
    ]
    assert sum(len(unit.prompt_tokens) for unit in runs["DM"][0]) == 105


def test_seeds_decide_and_arrivals_do_not() -> None:
    one, again, other, sparse = (
        made(mix=STORED, arrivals=arrivals).build(seed)
        for seed, arrivals in ((0, AtOnce()), (0, AtOnce()), (1, AtOnce()), (0, WINDOW))
    )
    assert (one.prompt_tokens == again.prompt_tokens).all()
    assert len(one) != len(other)
    assert (one.prompt_tokens == sparse.prompt_tokens).all()
    assert 0 < sparse.arrival_s[0] <= sparse.arrival_s[-1] < 600


WINDOW = Stretched(table="mooncake_conversation", windows=30, duration_s=600.0)


def test_clients_do_not_send_calls_of_applications() -> None:
    with pytest.raises(ValueError, match="closed_loop sends single requests; calls of applicati"):
        made(mix=STORED, arrivals=ClosedLoop(clients=2, ramp_up_s=0.0, think_s=0.0))


def test_arrivals_fill_their_window_as_the_recording_does() -> None:
    drawn = WINDOW.draw(200_000, np.random.default_rng(0))
    counts, _ = np.histogram(drawn, bins=30, range=(0.0, 600.0))
    assert counts.sum() == 200_000
    assert counts[2] / counts[1] == pytest.approx(0.795881 / 1.00063, rel=0.05)


def test_seconds_of_a_batch_by_hand() -> None:
    """Half a second for the prefill, a quarter each for four decodes of both and five of one."""
    assert batch_s(FlatCosts(), ServiceId("llm"), 1, [(100, 5), (50, 10)]) == pytest.approx(2.75)


def test_a_deadline_is_that_of_the_kind() -> None:
    """Known runs take 2.5 + 2.5 s a round; a deadline does not tell how many are to come."""
    load = made(deadline_scales=[1.2, 2.0]).build(0)
    rounds = np.mean([len(run) / 2 for run in CODE.past()])
    assert set(load.deadline_s.round(6)) == {round(scale * 5.0 * rounds, 6) for scale in (1.2, 2.0)}


def test_tenants_are_kinds_or_applications() -> None:
    assert made(mix={"CC": 1.0, "PE": 1.0}).build(0).tenants == ("CC", "PE")
    assert len(made(tenant="application").build(0).tenants) == 40


REFUSED: dict[str, tuple[Any, str]] = {
    "no samples": (
        lambda: Unit(name="u", **LLM | {"output_tokens": []}),
        "unit 'u' has no samples of output_tokens",
    ),
    "neither": (lambda: Unit(name="u"), "unit 'u' names neither a service nor seconds"),
    "both": (
        lambda: Unit(name="u", **LLM, seconds=[1.0]),
        "unit 'u' names both a service and seconds",
    ),
    "shares": (
        lambda: Unit(name="u", **LLM, then={END: 0.5}),
        "unit 'u' goes on by {'end': 0.5}, not shares of 1",
    ),
    "empty prompt": (
        lambda: Unit(name="u", **LLM | {"prompt_tokens": [0]}),
        "unit 'u'.prompt_tokens is 0, it must be positive",
    ),
    "endless": (
        lambda: DeclaredKind(
            name="a",
            first="write",
            units=[WRITE, Unit(name="run", seconds=[1.0], then={"write": 1.0, END: 0.0})],
        ),
        "application 'a' cannot end after unit 'write'",
    ),
    "hardly ends": (
        lambda: DeclaredKind(
            name="a", first="u", units=[Unit(name="u", **LLM, then={"u": 0.9999, END: 0.0001})]
        ),
        "application 'a' ends after 10000 units on average, at most 1000 are allowed",
    ),
    "unknown unit": (
        lambda: DeclaredKind(name="a", first="write", units=[WRITE]),
        "application 'a' has no unit 'run'",
    ),
    "unknown service": (
        lambda: made(services={"other": "Llama-2-7b-hf"}),
        "application 'code' calls 'llm', which workload.services={'other': 'Llama-2-7b-hf'} lacks",
    ),
    "unknown kind": (
        lambda: made(mix={"DMM": 1.0}),
        "No application is called 'DMM'; closest: DM.",
    ),
    "no weight": (
        lambda: made(mix={"code": 0.0}),
        "workload.mix={'code': 0.0} gives no application a weight",
    ),
    "tenant": (lambda: made(tenant="user"), "workload.tenant=user is none of kind, application"),
    "deadline": (
        lambda: made(deadline_scales=[-1.2]),
        "workload.deadline_scales[0] is -1.2, it must be positive",
    ),
    "limit": (
        lambda: made(max_output_tokens=8).build(0),
        "a call of 100 prompt and 9 answer tokens exceeds workload.max_output_tokens, 8",
    ),
    "context": (
        lambda: made(context_tokens=90).build(0),
        "a call of 100 prompt and 9 answer tokens exceeds workload.context_tokens, 90",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_a_sentence(case: str) -> None:
    make, words = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
