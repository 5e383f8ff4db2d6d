"""Stand-in until the real module is merged."""
from dataclasses import dataclass, field
from pathlib import Path
import pandas as pd

@dataclass
class ScenarioCells:
    axes: tuple[str, ...] = ()
    reference: pd.DataFrame = field(default_factory=pd.DataFrame)
    variations: dict[str, pd.DataFrame] = field(default_factory=dict)

def column_of(axis: str) -> str:
    return axis.replace("/", ".").rpartition(".")[2]

def read_cells(folder: Path, variant: str) -> ScenarioCells:
    return ScenarioCells()
