"""Rooms of the project and the floors they are on: which may import which."""

import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.config.paths import ROOT
from harness.tests.support.sources import (
    imported_at_once,
    imports,
    is_test,
    module_of,
    own_imports,
    python_files,
    relative,
)

CONFIG, TOOLS = "harness.config", "harness.tools"
"""What any room may import (paths, input files, objects from YAML nodes), and what none may."""

ROOMS: dict[str, set[str]] = {
    CONFIG: set(),
    "harness.interface": set(),
    "harness.core": {"harness.interface"},
    "harness.costs": {"harness.interface"},
    "harness.workloads": {"harness.interface", "harness.costs"},
    # The tables of lengths are what a length predictor samples from.
    "harness.predictors": {"harness.interface", "harness.workloads.ecdf"},
    "harness.engines": {
        "harness.interface",
        "harness.core",
        "harness.costs",
        "harness.workloads",
    },
    "harness.engines.simulator": {
        "harness.interface",
        "harness.core",
        "harness.costs",
        "harness.workloads",
        "harness.engines",
    },
    # vLLM's own scheduler can be driven without vLLM's engine: by the simulator, in its time.
    "harness.engines.vllm": {
        "harness.interface",
        "harness.core",
        "harness.costs",
        "harness.workloads",
        "harness.engines",
        "harness.engines.simulator",
    },
    # The compiled kernel and the arrays it works on; no loop and no event of the simulator.
    "harness.planning": {
        "harness.interface",
        "harness.costs",
        "harness.workloads.ecdf",
        "harness.engines.state",
        "harness.engines.simulator.kernel",
        "harness.engines.simulator.compiled_groups",
        "harness.engines.simulator.rules",
    },
    # The engines of a run, its predictor and its policies are built from a configuration's names.
    "harness.runs": {
        "harness.interface",
        "harness.costs",
        "harness.workloads",
        "harness.engines",
        "harness.planning.application_history",
        "harness.planning.forecast",
        "harness.planning.solo",
    },
    "harness.claims": {"harness.runs"},
    "policies": {"harness.interface", "harness.core", "harness.planning"},
    # What a paper claims, and figures of one run that no summary has, lie beside its policies.
    "systems.*.claims": {"harness.claims", "harness.runs"},
    "plots": {
        "harness.claims",
        "harness.workloads.lengths",
        "harness.runs",
        "harness.costs.model_facts",
        "systems.*.claims",
    },
}
"""Room -> rooms, or modules, that it may import besides itself and `harness.config`."""

OF_A_PAPER = re.compile(r"systems\.\w+\.(claims|effects|facts|measures)$")
POLICIES = re.compile(r"(baselines|systems)(\.\w|$)")
COMMANDS = re.compile(
    r"harness\.((api|boundary|run|compare|league|league_checks|observed|plan|policy_checks|rank|results"
    r"|reproduce|where|why|winners|__main__)$|capacity(\.|$))"
)

CLAIMS = re.compile(r"harness\.(claims|conditions)(\.|$)")
"""What comes out of claims, at a paper's own setting and in others."""

TOP = {"harness.commands", "harness.report", TOOLS}
"""Rooms that may import anything: why to believe a result, and what a person sees of it."""

MOST_ROOMS, MOST_ARROWS = 23, 80
"""An arrow: a room imports another one, `harness.config` counted as well."""

MECHANISM_AND_PLOTS = [path for path in python_files() if not is_test(path)]


def is_in(module: str, place: str) -> bool:
    """Whether a module is that one or lies below it."""
    return module == place or module.startswith(f"{place}.")


def room_of(module: str) -> str | None:
    """The innermost room that a module lies in; None for one that has no place yet."""
    if OF_A_PAPER.match(module):
        return "systems.*.claims"
    if COMMANDS.match(module):
        return "harness.commands"
    if CLAIMS.match(module):
        return "harness.claims"
    if POLICIES.match(module):
        return "policies"
    return max((room for room in ROOMS.keys() | TOP if is_in(module, room)), key=len, default=None)


def may_import(room: str, module: str) -> bool:
    """Whether a file of the room may import the module."""
    if room in TOP:
        return True
    target = room_of(module)
    return any(
        target == place if place in ROOMS else is_in(module, place)
        for place in ROOMS[room] | {CONFIG, room}
    )


def test_every_file_is_in_a_room() -> None:
    packages = {"harness", "baselines", "systems", "plots"}
    modules = {module_of(path) for path in MECHANISM_AND_PLOTS} - packages
    homeless = {module for module in modules if room_of(module) is None}
    empty = (ROOMS.keys() | TOP) - {room_of(module) for module in modules}
    assert (homeless, empty) == (set(), set())


def test_a_room_imports_only_what_stands_below_it() -> None:
    found = [
        f"{relative(path)} imports {module}"
        for path in MECHANISM_AND_PLOTS
        for module in sorted(own_imports(path))
        if (room := room_of(module_of(path))) and not may_import(room, module)
    ]
    assert not found, "\n".join(found)


def test_rooms_and_arrows_between_them_are_few() -> None:
    arrows = {
        (room, target)
        for path in MECHANISM_AND_PLOTS
        for module in own_imports(path)
        if (room := room_of(module_of(path))) and (target := room_of(module)) not in (room, None)
    }
    assert len(ROOMS | dict.fromkeys(TOP)) <= MOST_ROOMS
    assert len(arrows) <= MOST_ARROWS, sorted(map(str, arrows))


@pytest.mark.parametrize(
    ("room", "module", "answer"),
    [
        ("harness.workloads", "harness.workloads.ecdf", True),
        ("harness.workloads", "harness.predictors.oracle", False),
        ("harness.planning", "harness.engines.simulator.kernel.loop", True),
        ("harness.planning", "harness.engines.simulator.loop", False),
        ("harness.engines.simulator", "harness.engines.recorder", True),
        ("harness.engines.simulator", "harness.engines.vllm.run", False),
        ("harness.engines", "harness.engines.simulator.loop", False),
        ("harness.interface", "harness.config.paths", True),
        ("harness.interface", "harness.costs.model", False),
        ("harness.interface", "harness.core.draft", False),
        ("harness.core", "harness.engines.ask", False),
        ("harness.report", "plots.style", True),
        ("plots", "harness.claims.verdicts", True),
        ("harness.claims", "plots.style", False),
        ("policies", "harness.claims.effects", False),
        ("systems.*.claims", "harness.claims.effects", True),
        ("systems.*.claims", "systems.ssjf.effects", True),
        ("systems.*.claims", "systems.ssjf.policy", False),
        ("plots", "harness.run", False),
    ],
)
def test_floors_are_as_told(room: str, module: str, answer: bool) -> None:
    assert may_import(room, module) is answer


def test_nothing_imports_the_tools() -> None:
    """No run and no page needs them; they may import anything."""
    found = [
        f"{relative(path)} imports {module}"
        for path in MECHANISM_AND_PLOTS
        for module in sorted(own_imports(path))
        if room_of(module) == TOOLS != room_of(module_of(path))
    ]
    assert not found, "\n".join(found)


def test_what_few_runs_need_is_imported_where_they_use_it() -> None:
    """In functions: Ray, docker, and what copies or fetches data."""
    found = [
        f"{relative(path)} imports {name}"
        for path in MECHANISM_AND_PLOTS
        for name in imported_at_once(path)
        if name.partition(".")[0] in ("ray", "docker", "wandb", "datasets")
    ]
    assert not found, "\n".join(found)


def test_no_file_imports_itself_through_others() -> None:
    """For types alone or not."""
    files = {module_of(path): path for path in MECHANISM_AND_PLOTS}
    graph = {name: own_imports(path) - {name} for name, path in files.items()}
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert not circle, " imports ".join(reversed(circle))


def test_no_test_imports_another_test() -> None:
    """What several tests share is in a `support` folder."""

    def is_test_module(module: str) -> bool:
        return module.rpartition(".")[2].startswith("test_")

    found = [
        f"{relative(path)} imports {module}"
        for path in python_files()
        for module in sorted(set(imports(path)))
        if is_test_module(module)
    ]
    assert not found, "\n".join(found)


def test_what_serves_tests_alone_is_imported_by_tests_alone() -> None:
    def serves_tests(module: str) -> bool:
        return "tests" in Path(*module.split(".")).parts

    found = [
        f"{relative(path)} imports {module}"
        for path in MECHANISM_AND_PLOTS
        for module in sorted(own_imports(path))
        if serves_tests(module)
    ]
    assert not found, "\n".join(found)


@cache
def _floor(room: str) -> int:
    below = {room_of(module) for module in ROOMS[room]} - {room, None}
    return 0 if room == CONFIG else 1 + max((_floor(str(name)) for name in below), default=0)


def test_the_page_of_the_architecture_has_the_floors_that_hold() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n## Rooms")[2]
    rows = re.findall(r"^\| (\d+|top) \| (.+) \|$", text, re.MULTILINE)
    told = {room: floor for floor, rooms in rows for room in re.findall(r"`([\w.*]+)`", rooms)}
    assert told == {room: str(_floor(room)) for room in ROOMS} | dict.fromkeys(TOP, "top")
