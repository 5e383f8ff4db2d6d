"""What stored comparisons of measured and simulated runs say, as sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

JCT = "jct_s_mean"
WORDS = {JCT: "mean JCT", "act_s_mean": "mean ACT"}
"""Of figures that are saved; others by their name."""


def saving_text(row: Mapping[str, Any]) -> str:
    """As a sentence; what is not saved is a multiple of the reference's."""
    of, seeds = _figure_of(row), f"({row['seeds']} seeds)"
    if row["measured"][0] < 0:
        measured, simulated = multiples(row)
        return f"{row['system']} has {measured} times {of}, simulated {simulated} {seeds}"
    kinds = (f"{kind} {_ends(row[kind], '{:.1%}')}" for kind in ("measured", "simulated"))
    return f"{row['system']} saves of {of}: {', '.join(kinds)} {seeds}"


def savings_texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences; systems that save nothing share one, where there are several."""
    more = [row for row in rows if row["measured"][0] < 0]
    if len(more) < 2:
        return [saving_text(row) for row in rows]
    each = "; ".join(f"{row['system']} {' / '.join(multiples(row))}" for row in more)
    together = f"times {_figure_of(more[0])}, measured / simulated: {each}"
    return [*(saving_text(row) for row in rows if row not in more), together]


def multiples(row: Mapping[str, Any]) -> list[str]:
    """What a system has of the reference's figure, measured and simulated."""
    kinds = (row["measured"], row["simulated"])
    times = (
        [None if it is None else 1 - it for it in (value, high, low)] for value, low, high in kinds
    )
    return [_ends(it, "{:.2f}") for it in times]


def _figure_of(row: Mapping[str, Any]) -> str:
    figure = row.get("figure", JCT)
    return f"{row['over']}'s {WORDS.get(figure, figure.replace('_', ' '))}"


def _ends(parts: Sequence[float | None], form: str) -> str:
    """A value with its interval, where that is known."""
    value, low, high = (None if it is None else form.format(it) for it in parts)
    return f"{value}" if low is None else f"{value} [{low}, {high}]"


def order_text(row: Mapping[str, Any]) -> str:
    """As a sentence."""
    ends = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return (
        f"order of {row['systems']} systems by {row['figure']}, measured and simulated: rank "
        f"correlation {row['rank_correlation']:.2f}{ends} ({row['seeds']} seeds)"
    )


def same_batches_text(row: Mapping[str, Any]) -> str:
    """As a sentence."""
    tokens = "the same" if row["exact"] else "different"
    return (
        f"{row['system']} runs the same batches in {row['equal']} of {row['seeds']} seeds, in "
        f"{row['until']:,} of {row['iterations']:,} iterations up to the first that differs; "
        f"{tokens} answer lengths"
    )
