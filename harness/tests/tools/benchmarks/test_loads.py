"""The loads of benchmarks are what their figures say."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.checks import IllegalDecision
from harness.interface.graph import no_edges
from harness.tests.support.applications import linked_pairs
from harness.tools.benchmarks import shared_groups
from harness.tools.benchmarks.applications import CALLS, LOAD, REPLICAS, applications
from harness.tools.benchmarks.commands import seconds_from_empty_cache
from harness.tools.benchmarks.long_trace import main, trace
from harness.tools.benchmarks.planning import REQUESTS, SERVICES, history
from harness.tools.benchmarks.reference_load import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    capacity_per_s,
    w1,
)
from harness.tools.benchmarks.speed import policies
from harness.workloads.workload import Workload


def test_a_trace_has_the_means_of_the_reference_load() -> None:
    load = trace(10_000, np.zeros(10_000))
    assert load.prompt_tokens.mean() == pytest.approx(PROMPT_TOKENS, rel=0.02)
    assert load.output_tokens.mean() == pytest.approx(OUTPUT_TOKENS, rel=0.02)


def test_a_part_of_a_trace_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests", "50"]) == 0
    seconds, peak_bytes = json.loads(capsys.readouterr().out)
    assert seconds > 0
    assert peak_bytes > 10**6


def test_a_trace_without_requests_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--requests", "0"])
    assert "--requests is 0, it must be 1 or more" in capsys.readouterr().err


def test_a_history_is_that_of_many_services() -> None:
    windows = history()
    assert len(windows) == SERVICES
    assert sum(map(len, windows)) == REQUESTS
    assert len(windows[0]) > 4 * len(windows[-1])


def test_applications_are_chains_and_calls_that_split_and_join() -> None:
    load = applications(200)
    assert (load.app[load.edges.parent] == load.app[load.edges.child]).all()
    calls = np.bincount(load.app)
    assert (calls.min(), calls.max()) == CALLS
    assert calls.mean() == pytest.approx(13, rel=0.05)
    assert linked_pairs(applications(2))[:4] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    waits = np.bincount(load.edges.child, minlength=len(load))
    splits = np.bincount(load.edges.parent, minlength=len(load))
    for parts in (waits, splits):
        most = np.maximum.reduceat(parts, np.cumsum(calls) - calls)
        assert np.array_equal(most, np.where(np.arange(200) % 2, 1, calls - 2))


def test_applications_offer_their_replicas_a_share_of_what_these_can_serve() -> None:
    load = applications(200)
    alone = replace(load, arrival_s=np.zeros(len(load)), edges=no_edges())
    capacity_calls_per_s = REPLICAS * capacity_per_s(policies()["vllm"], alone)
    offered_calls_per_s = len(load) / load.arrival_s[-1]
    assert offered_calls_per_s == pytest.approx(LOAD * capacity_calls_per_s, rel=0.15)


def test_every_gpu_holds_two_services_and_every_service_is_on_as_many() -> None:
    services = w1(1, 1, 16).services
    groups = shared_groups.pairs(services, 32).groups
    assert {len(group.services) for group in groups} == {2}
    held = Counter(service for group in groups for service in group.services)
    assert held == {service.id: 4 for service in services}


def test_an_engine_that_refuses_orders_of_several_services_has_no_figure_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(load: Workload) -> float:
        raise IllegalDecision("a priority order in a group of 2 services")

    monkeypatch.setattr(shared_groups, "shared_s", refuse)
    assert shared_groups.measure() == {}
    said = "no figure for shared groups: a priority order in a group of 2 services\n"
    assert capsys.readouterr().err == said


def test_a_run_from_an_empty_cache_has_a_home_of_its_own(tmp_path: Path) -> None:
    said = tmp_path / "said"
    text = f"import os, pathlib; pathlib.Path('{said}').write_text(os.environ['NUMBA_CACHE_DIR'])"
    assert seconds_from_empty_cache(["-c", text]) > 0
    assert not Path(said.read_text()).exists()
