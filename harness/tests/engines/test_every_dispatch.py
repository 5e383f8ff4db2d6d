"""What holds for every dispatch policy that a YAML file names. A new file is a new case."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from harness.config.build import build
from harness.config.yaml_files import read_choice
from harness.engines.recorder import Recorder
from harness.interface.entities import GroupId, RequestId, ServiceId
from harness.interface.policies import DispatchPolicy
from harness.interface.views import ClusterView
from harness.policy_checks import assert_conserved, assert_equal
from harness.tests.support.dispatches import assert_same_groups, groups_given
from harness.tests.support.files import SCENARIOS
from harness.tests.support.loads import closed
from harness.tests.support.policies import Restless
from harness.tests.support.prefixes import alike
from harness.tests.support.recorded_requests import MODEL, trace
from harness.tests.support.serving import Everywhere, UnevenCosts, rule, serve
from harness.workloads.workload import Workload

DISPATCHES = sorted(path.stem for path in (SCENARIOS / "system" / "dispatch").glob("*.yaml"))
THREE = Everywhere(("m", (0,)), ("m", (1,)), ("m", (2,)))


def _dispatch(name: str) -> DispatchPolicy:
    policy: DispatchPolicy = build(read_choice("system/dispatch", name), kind=DispatchPolicy)
    return policy


def _sessions(folder: Path) -> Workload:
    """Twelve sessions of four turns, some a while after the answer before, some at once."""
    rng, rows = np.random.default_rng(7), []
    for number in range(48):
        turn, session = divmod(number, 12)
        when = {"delay": int(rng.integers(0, 3)) * 300} if turn else {"timestamp": 70 * session}
        lengths = {"input_length": int(rng.integers(5, 90)), "output_length": 9 + session}
        rows.append(json.dumps({"session_id": f"s{session}", **when, **lengths}))
    path = folder / "sessions.jsonl"
    path.write_text("\n".join(rows))
    return trace(path, model=MODEL).build(0)


@pytest.mark.parametrize("name", DISPATCHES)
@pytest.mark.parametrize("caches", [False, True])
def test_it_drains_and_does_the_same_twice(name: str, caches: bool) -> None:
    load = alike(3, 60, gap_s=0.01)

    def served() -> Recorder:
        recorder = Recorder(keep_events=True)
        costs = UnevenCosts(load=0.1, intake_s_per_request=0.0031)
        about: dict[str, Any] = {"gpus": 4, "costs": costs, "prefix_caching": caches}
        return serve(load, None, THREE, dispatch=_dispatch(name), recorder=recorder, **about)

    one = served()
    assert_conserved(load, one)
    assert_equal(one, served())


@pytest.mark.parametrize("name", DISPATCHES)
@pytest.mark.parametrize("clients", [None, 7])
def test_the_same_groups_compiled_and_stepped(name: str, clients: int | None) -> None:
    """Open and closed loops, on groups that come and go in the latter case."""
    load = alike(4, 60, gap_s=0.01)
    assert_same_groups(
        lambda fast: serve(
            load if clients is None else closed(load, clients, 0.0431),
            placement=THREE if clients is None else Restless(5, [0.2719, 0.0113, 0.7], 4),
            dispatch=_dispatch(name),
            costs=UnevenCosts(load=0.1),
            gpus=4,
            fast_forward=fast,
        )
    )


@pytest.mark.parametrize("name", DISPATCHES)
def test_sessions_are_served_compiled_and_stepped(name: str, tmp_path: Path) -> None:
    load = _sessions(tmp_path)
    groups = Everywhere(*((MODEL, (gpu,)) for gpu in range(3)))
    costs = UnevenCosts(load=0.1, blocks=400)
    assert_same_groups(
        lambda fast: serve(
            load,
            Fcfs(rule=rule(chunked_prefill=True)),
            groups,
            dispatch=_dispatch(name),
            costs=costs,
            gpus=4,
            fast_forward=fast,
        )
    )


@pytest.mark.parametrize("name", DISPATCHES)
def test_lengths_of_unfinished_answers_change_nothing(name: str) -> None:
    """All have arrived before any answer ends, whatever its length."""
    load = alike(5, 40, gap_s=0.001)
    load = replace(load, arrival_s=np.linspace(0.0, 0.04, 40), max_output_tokens=np.full(40, 999))
    prompts = load.prompt_tokens  # contexts of prompts alone: answers are not shared
    tokens = np.minimum(load.prefix_tokens, np.where(load.prefix < 0, 0, prompts[load.prefix]))
    given = [
        groups_given(
            replace(load, output_tokens=outputs, prefix_tokens=tokens),
            _dispatch(name),
            THREE,
            costs=UnevenCosts(load=0.1, blocks=4000),
            gpus=4,
        )
        for outputs in (np.arange(100, 140), np.arange(500, 540)[::-1])
    ]
    assert given[0] == given[1]
    assert len(set(given[0])) > 1


class Foreseeing:
    """Asks for the prompt of the last request."""

    reads_load: ClassVar[bool] = False

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> list[GroupId]:
        """Too early."""
        view.prompt_blocks(RequestId(59), 16)
        return []


def test_prompts_that_have_not_arrived_are_not_shown() -> None:
    with pytest.raises(ValueError, match="r59 has not arrived: its prompt is not known"):
        serve(alike(3, 60, gap_s=0.1), None, THREE, gpus=4, dispatch=Foreseeing())
