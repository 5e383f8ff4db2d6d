"""Weights & Biases mirror of a scenario: one run with its configuration and table.

A mirror only: the run folders hold the result, so whatever fails here is a warning.
"""

import os
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.scratch import temporary_files

PROJECT = "llm-scheduler-bench"


def log_scenario(scenario: str, rows: pd.DataFrame, *, folder: Path) -> None:
    """Mirror one invocation of a scenario: `rows` as `record.read_summaries` returns them.

    Written below `folder`/wandb and sent nowhere, unless the user has set WANDB_MODE or
    WANDB_API_KEY. Warns where W&B fails.
    """
    try:
        with temporary_files():
            _mirror(scenario, rows, folder)
    except Exception as error:  # a lost mirror must never cost a result
        reason = str(error).partition("\n")[0]
        warnings.warn(f"{scenario} is not mirrored to Weights & Biases: {reason}", stacklevel=2)


def wandb_mode() -> str:
    """The user's own choice of WANDB_MODE, else online with an API key, else offline."""
    default = "online" if os.environ.get("WANDB_API_KEY") else "offline"
    return os.environ.get("WANDB_MODE") or default


def _mirror(scenario: str, rows: pd.DataFrame, folder: Path) -> None:
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
    plain = rows.astype(object).where(rows.notna(), None)
    shared, differing = _shared(plain), plain.rename_axis("run").reset_index()
    config = shared | {"scenario": scenario, "runs": len(rows)}
    run = wandb.init(project=PROJECT, name=scenario, config=config, dir=folder, settings=settings)
    try:
        # What all have in common is the run's configuration; W&B types each cell of a table.
        differing = differing.drop(columns=list(shared))
        table = wandb.Table(columns=[*differing], data=differing.to_numpy().tolist())
        run.log({"summary": table})
    finally:
        run.finish()


def _shared(rows: pd.DataFrame) -> dict[str, Any]:
    """Configuration that every row has in common."""
    columns = [name for name in rows.columns if name.startswith("config.")]
    return {name: rows[name].iloc[0] for name in columns if rows[name].nunique(dropna=False) == 1}
