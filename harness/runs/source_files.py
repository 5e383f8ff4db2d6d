"""Source files that a cell imports, directly or through other files."""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from pydoc import locate
from typing import NamedTuple

from harness import inputs
from harness.build import TARGET
from harness.paths import ROOT

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
    """The source files behind a cell whose configuration names these classes.

    They are the files of the classes' modules, of `ROOTS`, and of all modules that these import,
    at any depth and also inside functions; a package's `__init__.py` counts as imported by its
    modules. Installed packages are left out, unless a class is in one: their versions identify
    them. Raises ValueError for a file that cannot be parsed.
    """
    files: dict[str, Path] = {}
    to_do = [*ROOTS, *(module for name in classes for module in _modules_of(name))]
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
    """The file of a module; None for the standard library, and where there is no file."""
    loaded, top = sys.modules.get(module), module.partition(".")[0]
    if top in inputs.TOPS:
        return _program_file(module.replace(".", "/"))
    if loaded is None and top != module and top not in sys.modules:
        top_path = _file_of(top)
        if top_path is None or _is_installed(top_path):
            return None  # find_spec would import a library that the cell does not use
    try:
        spec = loaded.__spec__ if loaded is not None else find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None or not spec.has_location or not spec.origin:
        return None
    path = Path(spec.origin).resolve()
    return None if path.is_relative_to(_STANDARD) and not _is_installed(path) else path


def _program_file(base: str) -> Path | None:
    """The file of a module of the project, found without importing anything."""
    for name in (f"{base}/__init__.py", f"{base}.py"):
        if name in inputs.PROGRAM or (ROOT / name).is_file():
            return ROOT / name
    return None


_STANDARD = Path(sysconfig.get_paths()["stdlib"]).resolve()


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
