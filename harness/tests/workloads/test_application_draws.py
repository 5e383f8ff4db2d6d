"""Kinds and deadlines as the public program of Hermes draws them, recomputed from its seed 0."""

import re

import numpy as np
import pytest

from harness.workloads.application_draws import DeadlineService, KindDraw
from harness.workloads.applications import RecordedKind, UnitCalls

SCRIPT = ["DM", "MRS", "PE", "CG", "CC", "KBQAV", "ALFWI", "EV", "FEV"]
SCRIPT_MIX = dict(zip(SCRIPT, (2, 16, 10, 16, 16, 16, 16, 4, 4), strict=True))
PAPER = ["DM", "MRS", "CG", "PE", "CC", "KBQAV", "EV", "FEV", "ALFWI"]
PAPER_MIX = dict(zip(PAPER, (1, 1, 13, 13, 22, 22, 3, 3, 22), strict=True))
SCALES = (1.2, 1.5, 2.0)


@pytest.mark.parametrize(
    ("order", "mix", "count", "scales", "kinds"),
    [
        (SCRIPT, SCRIPT_MIX, 200, (), [6, 26, 17, 29, 32, 37, 42, 4, 7]),
        (SCRIPT, SCRIPT_MIX, 1500, (), [32, 226, 142, 236, 242, 254, 246, 59, 63]),
        (SCRIPT, SCRIPT_MIX, 200, SCALES, [3, 36, 19, 29, 28, 33, 39, 6, 7]),
        (PAPER, PAPER_MIX, 300, (), [8, 2, 42, 26, 64, 67, 7, 5, 79]),
    ],
)
def test_kinds_of_seed_0_are_those_of_the_program(
    order: list[str],
    mix: dict[str, float],
    count: int,
    scales: tuple[float, ...],
    kinds: list[int],
) -> None:
    draw = KindDraw.of({"seed": 0, "order": order}, mix)
    assert draw is not None
    kind, scale = draw.drawn(order, count, scales)
    assert np.bincount(kind, minlength=len(order)).tolist() == kinds
    assert set(scale.tolist()) == set(scales) if scales else np.isnan(scale).all()


def test_an_order_of_other_kinds_is_refused() -> None:
    said = "workload.kind_draw.order=DM, EV and the kinds of workload.mix with a weight, CC, DM,"
    with pytest.raises(ValueError, match=re.escape(said)):
        KindDraw.of({"seed": 0, "order": ["DM", "EV"]}, {"DM": 1, "CC": 2, "EV": 0})


def _kind(name: str) -> RecordedKind:
    """Two runs are known, of 500 and of 1,000 s; the runs between them are served."""
    tool = [UnitCalls("tool", external_s=(100.0,))]
    runs = [
        [[UnitCalls("a", "llm", (1000,) * parallel, (200,) * parallel)], tool]
        for parallel in (4, 30, 9, 30)
    ]
    return RecordedKind(name, runs, files={})


def test_a_deadline_by_the_longest_run_by_hand() -> None:
    """Longest: 9 calls of 0.04 x 1,000 + 0.3 x 200 = 100 s, and 100 s outside: 1,000 s.

    DM with factor 1.2: 1.2 x 0.7 x 1,000 / 5 = 168 s.
    """
    given = {
        "prompt_token_s": 0.04,
        "output_token_s": 0.3,
        "share": 0.7,
        "divided_by": {"DM": 5, "CC": 2},
    }
    service = DeadlineService.of(given, ["DM", "CC", "CG"], SCALES)
    assert service is not None
    assert 1.2 * service.seconds(_kind("DM")) == pytest.approx(168)
    assert service.seconds(_kind("CG")) == pytest.approx(700)


GOOD = {"prompt_token_s": 0.1, "output_token_s": 0.1, "share": 0.7, "divided_by": {"DM": 5}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": 0.7}, "workload.deadline_service has share; its keys are prompt_token_s,"),
        (GOOD | {"share": "x"}, "workload.deadline_service: share=x is no number"),
        (GOOD | {"divided_by": 5}, "workload.deadline_service.divided_by=5 has no numbers by kind"),
        (GOOD | {"divided_by": {"DMX": 5}}, "divided_by has DMX, which is not in workload.mix: DM"),
    ],
)
def test_services_that_cannot_be_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        DeadlineService.of(given, ["DM"], SCALES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": 1.5, "order": ["DM"]}, "workload.kind_draw.seed=1.5 is no whole number"),
        ({"seed": 0, "order": None}, "workload.kind_draw.order=None is no list of kinds"),
        ({}, "workload.kind_draw has no keys; its keys are seed, order"),
    ],
)
def test_draws_that_cannot_be_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        KindDraw.of(given, {"DM": 1})


def test_a_service_without_scales_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs workload.deadline_scales, which is \[\]"):
        DeadlineService.of(GOOD, ["DM"], ())
