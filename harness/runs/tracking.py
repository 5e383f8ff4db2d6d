"""Weights & Biases mirror of a scenario: one run with its configuration, table and figures.

A mirror only: the run folders hold the result, so whatever fails here is a warning.
"""

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.scratch import temporary_files

MODES = ("wandb", "none")
PROJECT = "llm-scheduler-bench"


def log_scenario(
    mode: str, *, scenario: str, rows: pd.DataFrame, figures: Sequence[Path], folder: Path
) -> None:
    """Mirror one invocation of a scenario: `rows` as `record.read_summaries` returns them.

    `mode` is `wandb` or `none`. Written below `folder`/wandb and sent nowhere, unless the user has
    set WANDB_MODE or WANDB_API_KEY. Raises `ValueError` for another mode; warns where W&B fails.
    """
    if mode not in MODES:
        raise ValueError(f"tracking is one of {', '.join(MODES)}, not {mode}")
    if mode == "none":
        return
    try:
        with temporary_files():
            _mirror(scenario, rows, figures, folder)
    except Exception as error:  # a lost mirror must never cost a result
        reason = str(error).partition("\n")[0]
        warnings.warn(f"{scenario} is not mirrored to Weights & Biases: {reason}", stacklevel=2)


def wandb_mode() -> str:
    """The user's own choice of WANDB_MODE, else online with an API key, else offline."""
    default = "online" if os.environ.get("WANDB_API_KEY") else "offline"
    return os.environ.get("WANDB_MODE") or default


def _mirror(scenario: str, rows: pd.DataFrame, figures: Sequence[Path], folder: Path) -> None:
    target = folder / "wandb"
    target.mkdir(parents=True, exist_ok=True)
    # W&B stages copies of artefacts; they belong beside the run, not in the home folder.
    os.environ.setdefault("WANDB_DATA_DIR", str(target))
    os.environ.setdefault("WANDB_CACHE_DIR", str(target))
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # it advertises itself beside our table
    import wandb  # takes half a second, which other commands need not pay

    settings: dict[str, Any] = {
        "mode": wandb_mode(),
        "silent": True,
        "console": "off",
        "disable_git": True,
        "disable_code": True,
        "x_disable_stats": True,
    }
    shared = _shared(rows)
    config = shared | {"scenario": scenario, "runs": len(rows)}
    run = wandb.init(project=PROJECT, name=scenario, config=config, dir=folder, settings=settings)
    try:
        # What all have in common is the run's configuration; W&B types each cell of a table.
        differing = rows.drop(columns=list(shared))
        table = wandb.Table(columns=["run", *differing.columns], data=_cells(differing))
        run.log({"summary": table})
        if figures:
            artefact = wandb.Artifact(f"{scenario}-figures", type="figure")
            for figure in figures:
                artefact.add_file(str(figure))
            run.log_artifact(artefact)
    finally:
        run.finish()


def _shared(rows: pd.DataFrame) -> dict[str, Any]:
    """Configuration that every row has in common."""
    columns = [name for name in rows.columns if name.startswith("config.")]
    texts = {name: rows[name].map(_cell) for name in columns}
    return {name: text.iloc[0] for name, text in texts.items() if text.nunique(dropna=False) == 1}


def _cells(rows: pd.DataFrame) -> list[Iterable[Any]]:
    return [
        [str(name), *map(_cell, row)]
        for name, row in zip(rows.index, rows.to_numpy(dtype=object).tolist(), strict=True)
    ]


def _cell(value: object) -> object:
    """What a W&B table can hold: lists as JSON text, missing values as None."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    return None if value is None or value != value else value
