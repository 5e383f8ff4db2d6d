"""Summaries as they are read back, and the table that is printed of them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from harness.runs.table import print_cells

COMPARE = {"axis": "system", "reference": "ours"}
SHOWS = ("inference_s", "extra_s", "end_to_end_s", "gpu_idle_s", "gpu_loading_s")


def row(system: str, inference_s: float, costs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A summary as it is read back, with a quarter of a second of planning."""
    return {
        "config.system.name": system,
        "inference_s": inference_s,
        "extra_s": 0.25,
        "end_to_end_s": inference_s + 0.25,
        "gpu_idle_s": 12345.6,
        "gpu_loading_s": 20.0,
        "costs.profile": "a100",
        "costs.fit_error": 0.012,
        "costs.source.m1": "measured",
        "costs.source.m2": "roofline",
    } | dict(costs or {})


def printed(
    rows: Sequence[dict[str, Any]],
    settings: Sequence[Mapping[str, object]],
    compare: dict[str, Any] | None = None,
    *,
    terminal: int | None = None,
    shows: Sequence[str] = SHOWS,
) -> list[str]:
    """Lines as they come out, without styles; a file unless a terminal's width is given."""
    names = [f"run{place}" for place in range(len(rows))]
    out = io.StringIO()
    console = Console(
        file=out,
        width=terminal or 80,
        force_terminal=terminal is not None,
        color_system=None,
        no_color=True,
        highlight=False,
        markup=False,
    )
    by_run = dict(zip(names, settings, strict=True))
    print_cells(
        pd.DataFrame(rows, index=names),
        by_run,
        COMPARE if compare is None else compare,
        shows=shows,
        console=console,
    )
    plain = out.getvalue()
    for style in ("\x1b[1m", "\x1b[0m", "\x1b[2;3m"):
        plain = plain.replace(style, "")
    return plain.splitlines()


def body(lines: list[str]) -> list[list[str]]:
    """Words of the rows between the rule and the caption."""
    rule = next(place for place, line in enumerate(lines) if line.startswith("─"))
    return [line.split() for line in lines[rule + 1 : -1]]
