"""Configurations composed as the command does, inside the test's own process."""

from collections.abc import Iterator
from contextlib import contextmanager

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from harness import run
from harness.config.paths import ROOT
from harness.runs.cells import Cell


@contextmanager
def composed(*overrides: str) -> Iterator[DictConfig]:
    """The configuration of a command line, while Hydra knows that command line."""
    with initialize_config_dir(str(ROOT / "scenarios"), version_base="1.3"):
        config = compose("run", overrides=list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        with open_dict(config):
            del config["hydra"]
        yield config


def cells_of(*overrides: str) -> list[Cell]:
    """Every cell of a command line, built."""
    with composed(*overrides) as config:
        matrix = run.matrix_of(config)
        return [cell for place in matrix.places if (cell := matrix.cell_at(place))]


def first_cell_of(*overrides: str) -> Cell:
    """The first cell of a command line, built."""
    with composed(*overrides) as config:
        matrix = run.matrix_of(config)
        return next(cell for place in matrix.places if (cell := matrix.cell_at(place)))
