"""Specification curves show every setting, sorted, beside the paper's figure."""

from typing import Any

import numpy as np
import pytest

from plots import specifications


def row(name: str, values: list[float | None], **parts: Any) -> dict[str, Any]:
    """A claim as a verdict file has it, with one open choice."""
    found = [
        {
            "choices": {"policy.rule.slots": at},
            "varied": "policy.rule.slots" if at else "",
            "agreement": "not run" if value is None else "agrees" if value > 1 else "differs",
            "value": value,
            "low": None if value is None else value - 0.1,
            "high": None if value is None else value + 0.1,
        }
        for at, value in enumerate(values)
    ]
    opened = [{"key": "policy.rule.slots", "values": [*range(len(values))], "source": "none"}]
    usual = {"id": f"p.{name}", "verdict": "depends", "band": [1.1, 2.4]}
    return usual | {"open": opened, "specifications": found} | parts


def test_a_panel_per_claim_with_several_settings() -> None:
    rows = [row("a", [1.5, 0.9, None]), row("b", [1.2, 1.3], band=None), row("c", [1.0])]
    figure = specifications.draw([*rows, row("d", [None, None])])
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["a: depends", "b: depends"]
    points = [
        (float(x), float(y))
        for line in panels[0].lines
        if line.get_marker() in ("o", "X") and line.get_fillstyle() != "none"
        for x, y in np.asarray(line.get_xydata())
    ]
    assert sorted(points) == [(0, 0.9), (1, 1.5)]
    labels = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert labels == ["slots 0", "slots 1", "slots 2"]
    marks = {
        (float(x), float(y)): line.get_markersize()
        for line in figure.axes[1].lines
        for x, y in np.asarray(line.get_xydata())
    }
    # Sorted by outcome: slots 1, then 0; the one without a figure comes last.
    large = [(0, 1), (1, 0), (2, 2)]
    assert sorted(place for place, size in marks.items() if size == 5) == large
    assert len(marks) == 9


def test_the_stated_setting_is_ringed() -> None:
    (panel, _) = specifications.draw([row("a", [1.5, 0.9])]).axes
    (ring,) = [line for line in panel.lines if line.get_fillstyle() == "none"]
    assert float(np.asarray(ring.get_ydata())[0]) == 1.5


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="no claim has been judged under several settings"):
        specifications.draw([row("c", [1.0])])
