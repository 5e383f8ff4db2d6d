"""Source files that a cell imports, directly or through other files."""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import all_suffixes
from importlib.util import find_spec, resolve_name
from pathlib import Path
from pydoc import locate
from typing import NamedTuple

from harness.config import inputs
from harness.config.build import TARGET

ROOTS = ("harness.runs.building", "harness.runs.cells")
"""Modules that build and compute every cell."""


class Sources(NamedTuple):
    """sha256 by name of the program's files, and of files from outside the program."""

    program: Mapping[str, str]
    outside: Mapping[str, str]

    @property
    def code(self) -> str:
        """12 hex digits over the program's files."""
        return inputs.together(self.program)


@cache
def sources_of(classes: tuple[str, ...]) -> Sources:
    """Those of a cell whose configuration names these classes: behind their modules, and `ROOTS`.

    Raises ValueError for a file that cannot be parsed.
    """
    return sources_behind((*ROOTS, *(module for name in classes for module in _modules_of(name))))


def sources_behind(modules: Sequence[str]) -> Sources:
    """The files of modules and of all that these import, at any depth and also inside functions.

    A package's `__init__.py` counts as imported by its modules. Installed packages are left out,
    unless one of `modules` is in one: their versions identify them. Raises ValueError for a file
    that cannot be parsed.
    """
    files: dict[str, Path] = {}
    to_do = [*modules]
    while to_do:
        module = to_do.pop()
        path = _file_of(module)
        if path is not None and module not in files:
            files[module] = path
            own = module.partition(".")[0]
            to_do += [other for other in _imports(module, path) if _may_change(other, own)]
    named = {inputs.name_of(path): path for path in files.values()}
    program = {name: inputs.PROGRAM[name] for name in sorted(named) if name in inputs.PROGRAM}
    outside = {n: inputs.sha256_imported(path) for n, path in named.items() if n not in program}
    return Sources(program, outside)


def targets(node: object) -> Iterator[str]:
    """Classes that a configuration names, at any depth."""
    if isinstance(node, Mapping):
        if TARGET in node:
            yield str(node[TARGET])
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from targets(value)


@cache
def _modules_of(name: str) -> tuple[str, ...]:
    """Modules of a class: the one in its name, and the modules that define it and its bases."""
    bases = getattr(locate(name), "__mro__", ())
    return (name.rpartition(".")[0], *(base.__module__ for base in bases))


@cache
def _file_of(module: str) -> Path | None:
    """The file of a module, found without importing it; None for one of the standard library."""
    top, *inner = module.split(".")
    if top in sys.stdlib_module_names:
        return None
    spec = find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return Path(spec.origin).resolve() if spec and spec.origin and not inner else None
    for folder in spec.submodule_search_locations:
        place = Path(folder, *inner)
        for suffix in all_suffixes():
            for path in (place / f"__init__{suffix}", place.parent / f"{place.name}{suffix}"):
                if path.is_file():
                    return path.resolve()
    return None


def _is_installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & {*path.parts})


def _may_change(module: str, own: str) -> bool:
    """Whether a module may change without its package's version: one of `own`, or not installed."""
    top = module.partition(".")[0]
    if top in (own, *inputs.TOPS):
        return True
    path = _file_of(top) or _file_of(module)  # a namespace package has no file
    return path is not None and not _is_installed(path)


@cache
def _imports(module: str, path: Path) -> tuple[str, ...]:
    """Modules that a file imports, wherever in it; of `from a import b` both a and a.b."""
    if path.suffix != ".py":
        return ()
    parent = module.rpartition(".")[0]
    package = module if path.name == "__init__.py" else parent
    found: list[str] = [parent] if parent else []
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{path} cannot be read as Python: {error}") from None
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            base = resolve_name(dots + (node.module or ""), package) if dots else node.module or ""
            found += [base, *(f"{base}.{name.name}" for name in node.names)]
    return tuple(dict.fromkeys(found))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Statements below a node, at any depth; expressions hold none."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from _statements(inner)
