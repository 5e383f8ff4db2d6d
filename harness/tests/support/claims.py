"""Cells of made-up runs, and effects made from samples."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from harness.claims.effects import ALL, Cells, Effect, EffectKind


def cells_of(axes: Sequence[str], *rows: Sequence[object], figure: str = "jct_s_mean") -> Cells:
    """A cell per row: its values on the axes, then the figure."""
    return pd.DataFrame(rows, columns=[*axes, figure]).assign(folder="none")


def effect_of(
    kind: EffectKind, samples: Iterable[float] | Mapping[str, Sequence[float]], seeds: int = 0
) -> Effect:
    """An effect of these samples, one per seed, by setting where there are several."""
    columns = samples if isinstance(samples, Mapping) else {ALL: list(samples)}
    return Effect(kind, pd.DataFrame(dict(columns)))
