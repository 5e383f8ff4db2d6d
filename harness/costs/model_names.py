"""How a model is named: a short name of a list, or the path of what tells its facts."""

import os
from functools import cache
from pathlib import Path

CONFIG = "config.json"
MISTRAL_CONFIG = "params.json"
"""Mistral's own format."""
GIVEN = (".yaml", ".yml")
"""Facts by hand."""
IN_FOLDERS = (CONFIG, MISTRAL_CONFIG, "facts.yaml")
"""What a folder of a model is looked through for, in this order."""
SUFFIXES = (".json", *GIVEN)
WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx")
CACHED = "models--"
"""How folders of models begin in the cache of Hugging Face."""


def is_config(name: str) -> bool:
    """Whether a model's name is the path of what tells its facts."""
    return name.endswith(SUFFIXES) or os.path.isabs(name)


@cache
def model_of(service: str) -> str:
    """The model that a service runs; of two services of one model each is `model~tag`.

    A path may have the same sign: a tag follows the file, or else has no separator of folders.
    """
    if service.endswith(SUFFIXES) or service.startswith("~"):
        return service
    for suffix in SUFFIXES:
        before, mark, _ = service.rpartition(f"{suffix}~")
        if mark:
            return before + suffix
    if os.path.isabs(service):
        model, mark, tag = service.rpartition("~")
        return model if mark and os.sep not in tag else service
    return service.partition("~")[0]


def config_path(name: str) -> Path | None:
    """The absolute path of the file that a name means; None of a short name.

    Links stay as they are: files beside a link belong to it. Raises ValueError for a path that has
    no config, and for weights.
    """
    path = Path(os.path.abspath(Path(name).expanduser()))
    if name.endswith(WEIGHTS):
        raise ValueError(f"{name} holds weights: give the path of the model's {CONFIG}")
    if path.is_dir():
        return _in_folder(path)
    if name.endswith(SUFFIXES) or path.is_file():
        return path
    if os.path.isabs(name) or name.startswith(("~", ".")):
        raise ValueError(f"{name} is no file or folder")
    return None


def _in_folder(folder: Path) -> Path:
    """The config in a folder of a model, or in one of the cache of Hugging Face."""
    if folder.name.startswith(CACHED) and (folder / "snapshots").is_dir():
        return _in_folder(_snapshot(folder))
    for name in IN_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{folder} has no {CONFIG}: give the path of the model's {CONFIG}")


def _snapshot(folder: Path) -> Path:
    """The snapshot that `refs/main` names, or the only one with a config."""
    main = folder / "refs" / "main"
    if main.is_file():
        named = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        if (named / CONFIG).is_file():
            return named
    found = sorted(path.parent for path in (folder / "snapshots").glob(f"*/{CONFIG}"))
    if len(found) != 1:
        said = ", ".join(path.name for path in found[:3]) or "none"
        raise ValueError(
            f"{folder} has {len(found)} snapshots with a {CONFIG} ({said}): give the path of one"
        )
    return found[0]


def shown_name(model: str) -> str:
    """A model's name in a table: of a config its folder, which has the name, or that of a cache."""
    path = Path(model)
    if path.name not in IN_FOLDERS:
        return path.name
    folder = path.parent
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith(CACHED):
        return folder.parents[1].name.rpartition("--")[2]
    return folder.name
