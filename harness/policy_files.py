"""A policy file on its own: for what builds a policy and runs no cell."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.yaml_files import in_one_line, read_yaml


def read_policy(path: Path) -> Any:
    """What a file as in scenarios/policy says, references to `policy` resolved, for `build`.

    Raises ValueError, naming the file, where it cannot be read or refers to what is not in it.
    """
    node = read_yaml(path)
    try:
        return OmegaConf.to_container(OmegaConf.create({"policy": node}), resolve=True)["policy"]
    except OmegaConfBaseException as error:
        raise ValueError(f"{path}: {in_one_line(error)}") from None
