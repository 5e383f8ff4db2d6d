"""The project's own files, what they are called as modules, and what they import."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.config.paths import ROOT

FOLDERS = ("harness", "baselines", "systems", "plots")


def python_files() -> list[Path]:
    """Every Python file of the project, tests included."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def is_test(path: Path) -> bool:
    """Whether a file is a test, or serves tests alone."""
    return "tests" in path.relative_to(ROOT).parts


def relative(path: Path) -> str:
    """A path from the project's folder."""
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def _modules() -> frozenset[str]:
    return frozenset(map(module_of, python_files()))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, wherever in it; of the project's own packages, which file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path} imports by a relative name"
            assert node.level == 0, f"{path} imports by a relative name"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in _modules() else node.module


def own_imports(path: Path) -> set[str]:
    """Modules of this project that a file imports."""
    return {name for name in imports(path) if name.partition(".")[0] in FOLDERS}


def imported_at_once(path: Path) -> list[str]:
    """Modules that are imported where a file is, not by a function of it."""
    found: list[str] = []
    for node in tree(path).body:
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(str(node.module))
    return found
