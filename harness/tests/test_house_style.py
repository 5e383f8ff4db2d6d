"""What the files of this project keep to, read from the files themselves."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from omegaconf import DictConfig, ListConfig, OmegaConf

from harness.config.paths import ROOT
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.tests.support.sources import imports, is_test, module_of, python_files, relative, tree

NAMES = re.compile(
    r"samullm|ssjf|hermes|seallm|ecoserve|orca|sarathi|fastserve|parrot|muxserve|alpaserve"
    r"|\bvtc\b",
    re.IGNORECASE,
)
ADDRESS = re.compile(r'data / "\w+" / "[\w.]+"')
"""Where a dataset lies: its folder bears the name of whose measurements it holds."""

MECHANISM = sorted(p for p in (ROOT / "harness").rglob("*.py") if "tests" not in p.parts)
POLICIES = sorted(
    path
    for folder in ("baselines", "systems")
    for path in (ROOT / folder).rglob("*.py")
    if "tests" not in path.parts
    and path.name not in ("__init__.py", "claims.py", "effects.py", "facts.py", "measures.py")
)
FIELDS = ("Paper", "Idea", "Map", "Constants", "Differs", "Checked")
CODE_LINES = 400
FILE_LINES = 500
CLAIM_LINES, CLAIMS_ROOM_LINES = 900, 1600
FUNCTION_LINES = 40
SCENARIOS = sorted((ROOT / "scenarios").rglob("*.yaml"))


def _code_lines(path: Path) -> int:
    """Lines that are neither empty, comments nor docstrings."""
    text = path.read_text(encoding="utf-8")
    lines = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node in ast.walk(tree(path)):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            text_node = node.body[0]
            lines -= set(range(text_node.lineno, (text_node.end_lineno or 0) + 1))
    return len(lines)


def test_mechanism_names_no_policy_and_no_paper() -> None:
    found = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in MECHANISM
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES.search(ADDRESS.sub("", line))
    ]
    assert found == []


@pytest.mark.parametrize("path", POLICIES, ids=relative)
def test_a_policy_imports_only_interface_core_planning_numpy_and_the_standard_library(
    path: Path,
) -> None:
    own = module_of(path).rpartition(".")[0]
    for module in imports(path):
        same_folder = own.startswith("systems.") and module.startswith(f"{own}.")
        ours = module.startswith(("harness.interface.", "harness.core.", "harness.planning."))
        top = module.partition(".")[0]
        allowed = ours or same_folder or top == "numpy" or top in sys.stdlib_module_names
        assert allowed, f"{relative(path)} imports {module}"


@pytest.mark.parametrize("path", POLICIES, ids=relative)
def test_a_policy_is_short(path: Path) -> None:
    lines = _code_lines(path)
    assert lines <= CODE_LINES, f"{relative(path)} has {lines} lines of code"


def _header(path: Path) -> dict[str, str]:
    """Fields of the header: a name at the start of a line, then text to the next one."""
    text = ast.get_docstring(tree(path)) or ""
    parts = re.split(rf"^({'|'.join(FIELDS)}) +", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("path", POLICIES, ids=relative)
def test_a_policys_header_is_complete_and_its_test_exists(path: Path) -> None:
    header = _header(path)
    assert list(header) == list(FIELDS), f"{relative(path)} has {', '.join(header)}"
    assert all(text.strip() for text in header.values())
    named = re.findall(r"[\w/]+\.py(?:::\w+)?", header["Checked"])
    assert named, f"{relative(path)} names no test"
    for name in named:
        file, _, function = name.partition("::")
        assert (ROOT / file).is_file(), f"{relative(path)} names {file}, which is not there"
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text if function else "def test_" in text, name


def test_one_file_imports_hydra() -> None:
    found = [p for p in python_files() if any(m.partition(".")[0] == "hydra" for m in imports(p))]
    assert [relative(p) for p in found if not is_test(p)] == ["harness/runs/composing.py"]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_long() -> None:
    """A paper's claims may be: one function per claim, in the order of the paper."""
    most = {path: CLAIM_LINES for path in (ROOT / "systems").glob("*/claims.py")}
    lengths = {p: _lines(p) for p in python_files()}
    found = [
        f"{relative(p)} has {n} lines" for p, n in lengths.items() if n > most.get(p, FILE_LINES)
    ]
    assert not found, "\n".join(found)
    assert sum(map(_lines, (ROOT / "harness/claims").glob("*.py"))) <= CLAIMS_ROOM_LINES


def test_no_function_is_long() -> None:
    """Measured from `def` to its last line, docstring and all."""
    found = []
    for path in python_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found.append(f"{relative(path)}: {node.name} has {lines} lines")
    assert not found, "\n".join(found)


def _types_of(path: Path) -> Iterator[tuple[str, str]]:
    """Public classes and aliases of types of a file, each with what it is."""
    for node in tree(path).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"the class of {relative(path)}"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target), ast.unparse(node.value)


def test_a_name_of_a_class_has_one_meaning() -> None:
    """An alias of a type may stand in several files if it is the same in all."""
    meanings: dict[str, set[str]] = {}
    for path in python_files():
        for name, meaning in [] if is_test(path) else _types_of(path):
            if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
                meanings.setdefault(name, set()).add(meaning)
    found = [f"{name}: {', '.join(sorted(of))}" for name, of in meanings.items() if len(of) > 1]
    assert not found, "\n".join(found)


def test_every_event_and_capability_is_of_use() -> None:
    """An event is observed by a policy, or by what policies plan with."""
    read = [*POLICIES, *(ROOT / "harness" / "planning").glob("*.py")]
    asked = [*read, *(ROOT / "harness" / "core").glob("*checks.py")]
    observed, named = (
        " ".join(it.read_text(encoding="utf-8") for it in of) for of in (read, asked)
    )
    events = {one.__name__ for one in get_args(Event)}
    assert {name for name in events if not re.search(rf"\b{name}\b", observed)} == set()
    assert {one for one in Capability if f"Capability.{one.name}" not in named} == set()


def _targets(node: object) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for key in node:
            if key == "_target_":
                yield str(node[key])
            elif not OmegaConf.is_interpolation(node, str(key)):
                yield from _targets(node[key])
    elif isinstance(node, ListConfig):
        for item in node:
            yield from _targets(item)


@pytest.mark.parametrize("path", SCENARIOS, ids=relative)
def test_what_a_scenario_names_can_be_imported(path: Path) -> None:
    for target in _targets(OmegaConf.load(path)):
        module, _, name = target.rpartition(".")
        if module.startswith("harness.engines.vllm"):
            pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
        assert callable(getattr(importlib.import_module(module), name, None)), target
        assert module.partition(".")[0] in {"harness", "baselines", "systems"}
