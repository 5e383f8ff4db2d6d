"""Code that a configuration brings along: the files of classes from outside the program."""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from pydoc import locate

from harness import inputs
from harness.build import TARGET


def modules_of(node: object) -> dict[str, str]:
    """sha256, by name, of every module behind the classes that a configuration names.

    A module's file, and those that it imports, and so on: of its own package wherever that lies, of
    others unless they are installed, whose versions say what they are. The program is left out.
    """
    files: dict[str, Path] = {}
    to_do = [module for name in targets(node) for module in _behind(name)]
    while to_do:
        module = to_do.pop()
        path = _file_of(module)
        if path is not None and module not in files:
            files[module] = path
            own = module.partition(".")[0]
            to_do += [other for other in _imports(module, path) if _may_change(other, own)]
    return {inputs.name_of(path): inputs.sha256_imported(path) for path in files.values()}


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
def _behind(name: str) -> tuple[str, ...]:
    """Modules of a class: where it was looked for, and where it and its bases are written."""
    bases = getattr(locate(name), "__mro__", ())
    return (name.rpartition(".")[0], *(base.__module__ for base in bases))


@cache
def _file_of(module: str) -> Path | None:
    """The file of a module from outside the program; None for others, and for what has none."""
    loaded, top = sys.modules.get(module), module.partition(".")[0]
    if loaded is None and top != module and top not in sys.modules:
        top_path = _file_of(top)
        if top_path is None or _is_installed(top_path):
            return None  # to look for it would be to import a library that nobody has asked for
    try:
        spec = loaded.__spec__ if loaded is not None else find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None or not spec.has_location or not spec.origin:
        return None
    path = Path(spec.origin).resolve()
    is_standard = path.is_relative_to(_STANDARD) and not _is_installed(path)
    return None if is_standard or inputs.name_of(path) in inputs.PROGRAM else path


_STANDARD = Path(sysconfig.get_paths()["stdlib"]).resolve()


def _is_installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & {*path.parts})


def _may_change(module: str, own: str) -> bool:
    """Whether a module may change without its package's version: one of `own`, or not installed."""
    path = _file_of(module)
    return path is not None and (module.partition(".")[0] == own or not _is_installed(path))


@cache
def _imports(module: str, path: Path) -> tuple[str, ...]:
    """Modules that a file imports, wherever in it; of `from a import b` both a and a.b."""
    if path.suffix != ".py":
        return ()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = [package] if package else []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            base = resolve_name(dots + (node.module or ""), package) if dots else node.module or ""
            found += [base, *(f"{base}.{name.name}" for name in node.names)]
    return tuple(dict.fromkeys(found))
