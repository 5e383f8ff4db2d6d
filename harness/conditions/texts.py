"""Sentences of maps: under which condition a claim comes out, and how sure that is."""

from collections.abc import Mapping, Sequence
from math import isfinite

from harness.conditions.boxes import Box, Checked
from harness.conditions.cells import STATE
from harness.conditions.changes import Change
from harness.conditions.maps import Map
from harness.conditions.outcomes import Outcome
from harness.conditions.space import STANDARD, Point, Space

SHORT: Mapping[str, str] = {
    "load": "load",
    "batch": "batches",
    "kv_share": "KV share",
    "tokens": "tokens of an iteration",
    "spread": "spread of answers",
    "prompts": "prompts",
    "burstiness": "burstiness",
    "error": "prediction error",
    "requests": "requests",
    "seconds": "seconds of iterations",
    "waiting_share": "waiting share of the baseline's JCT",
    "preempted_share": "share of preempted requests",
    "kv_use": "use of the KV",
}
"""Dimensions and states in a sentence; those of a paper alone have words of its own."""


def name_of(name: str, space: Space) -> str:
    """A dimension, or a state, in a sentence."""
    own = {it.name: it.words for it in space.dimensions}
    if name in own and (name not in STANDARD or own[name] != STANDARD[name].words):
        return own[name].partition(",")[0]
    return SHORT[name]


def number(value: float) -> str:
    """Two digits, whole where it is large, with an exponent from a million on."""
    if abs(value) >= 1e6:
        return f"{value:.2g}".replace("e+0", "e")
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def box_text(box: Box, space: Space) -> str:
    """`load >= 1.2, prediction error <= 0.77`."""
    said = []
    for name, (low, high) in box.limits.items():
        if isfinite(low) and isfinite(high):
            said.append(f"{name_of(name, space)} {number(low)} to {number(high)}")
        else:
            sign, end = (">=", low) if isfinite(low) else ("<=", high)
            said.append(f"{name_of(name, space)} {sign} {number(end)}")
    return ", ".join(said)


def condition(found: Map) -> str:
    """Where a claim comes out, in one sentence."""
    comes, tried = found.counts[Outcome.COMES_OUT], len(found.table)
    if not comes:
        share = f"{max(found.sizes.max(), 0.0):.0%}"
        at = setting_text(found.space, {n: found.most[n] for n in found.names})
        most = f"most: {share} of the claimed effect at {at}"
        return f"Nowhere in the ranges tried: {tried} cells; {most}."
    if not found.is_simple:
        best = f" The best limits: {best_of(found)}." if found.box else ""
        return f"No simple condition: it comes out in {comes / tried:.0%} of {tried}.{best}"
    checked = f"{tried} tried, {found.held.sum()} for checking"
    return f"Comes out when {_boxes_text(found.box, found.space)} ({checked})."


def best_of(found: Map) -> str:
    """`load >= 1.2 (right in 77% [58, 89], covers 87%)`; empty where no box is told."""
    return " or ".join(
        f"{box_text(it.box, found.space)} (right in {it.density:.0%} [{100 * it.density_low:.0f}, "
        f"{100 * it.density_high:.0f}], covers {it.coverage:.0%})"
        for it in found.box
    )


def _boxes_text(boxes: Sequence[Checked], space: Space) -> str:
    first, *others = boxes
    said = (
        f"{box_text(first.box, space)}; right in {first.density:.0%} "
        f"[{100 * first.density_low:.0f}, {100 * first.density_high:.0f}] of such settings, covers "
        f"{first.coverage:.0%} of those where it does"
    )
    more = (f"; or {box_text(it.box, space)} (right in {it.density:.0%})" for it in others)
    return said + "".join(more)


def state_condition(found: Map) -> str:
    """Where there is an effect, by what the baseline went through; empty where no box is right."""
    boxes = found.state_box
    if not boxes or not boxes[0].is_right or not STATE.keys() & boxes[0].box.limits.keys():
        return ""
    return f"It helps at all when {_boxes_text(boxes[:1], found.space)}."


def against(found: Map, outcome: Outcome) -> str:
    """`Reversed when ...`; empty where no box is told."""
    boxes = found.boxes(outcome)
    return (
        f"{outcome.value.capitalize()} when {_boxes_text(boxes[:1], found.space)}." if boxes else ""
    )


def change_text(space: Space, start: Point, change: Change | None, *, comes: bool) -> str:
    """What brings a claim at the paper's point, or where it is lost first."""
    if change is None:
        return "" if comes else "Neither one change brings it nor two or three expected to."
    said = " and ".join(
        f"{name_of(name, space)} {number(start[name])} -> {number(value)}"
        for name, value in change.values.items()
    )
    if comes:
        return f"Lost first by {said}."
    count = {1: "One change brings", 2: "Two changes bring", 3: "Three changes bring"}
    return f"{count[len(change.values)]} it: {said}."


def setting_text(space: Space, setting: Point) -> str:
    """`load 1.0, batches 4, ...`."""
    return ", ".join(
        f"{name_of(it.name, space)} {number(setting[it.name])}" for it in space.dimensions
    )
