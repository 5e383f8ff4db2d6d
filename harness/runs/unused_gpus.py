"""GPUs of a machine on which nothing was loaded and nothing ran."""

import pandas as pd

COUNT = "config.hardware.gpu_count"
USED = "gpus_used"
PLACEMENT = "config.system.placement"


def unused_gpus(rows: pd.DataFrame) -> str | None:
    """A sentence where runs have left GPUs unused; None where none has.

    `rows` are those of `read_summaries`. Names the key of a fixed placement that uses more.
    """
    if USED not in rows or COUNT not in rows:
        return None
    numbers = rows[[COUNT, USED]].apply(pd.to_numeric, errors="coerce")
    idle = (numbers[COUNT] - numbers[USED]).dropna()
    idle = idle[idle > 0].astype(int)
    if idle.empty:
        return None
    left = str(idle.max()) if idle.nunique() == 1 else f"{idle.min()} to {idle.max()}"
    counts = " or ".join(
        f"{it:,}" for it in sorted(numbers.loc[idle.index, COUNT].astype(int).unique())
    )
    some = "" if len(idle) == len(rows) else f" in {len(idle)} of {len(rows)} runs"
    hints = {_hint(rows.loc[run]) for run in idle.index}
    hint = hints.pop() if len(hints) == 1 else ""
    return f"{left} of {counts} GPUs were never used{some}{hint}"


def _hint(row: pd.Series) -> str:
    """The copies of every service that all GPUs have room for, of a placement that is fixed."""
    degrees = row.reindex([f"{PLACEMENT}.{name}_parallel" for name in ("data", "tensor")])
    if degrees.isna().any():
        return ""
    copies, each = degrees.astype(int)
    services, rest = divmod(int(row[USED]), copies * each)
    more = 0 if rest or not services else int(row[COUNT]) // (services * each)
    key = f"{PLACEMENT.removeprefix('config.')}.data_parallel"
    return f"; {key}={more} has {more} copies of every model" if more > copies else ""
