"""Stages are planned for continuous batches only; what they plan is tested elsewhere."""

import re
from typing import Any

import pytest

from harness.decisions import BatchRule, RequestBatches
from harness.outlook import Outlook
from harness.staged_placement import StagedPlacement
from harness.stages import Stage
from harness.tests.serving import LinearCosts, rule


class NoStages:
    """Plans nothing."""

    def plan(self, outlook: Outlook, gpus: int) -> list[Stage]:
        """None."""
        return []


def placement(batches: Any) -> StagedPlacement:
    """Stages under a batch rule."""
    return StagedPlacement(
        planner=NoStages(),
        planner_costs=LinearCosts(),
        lengths={},
        rule=batches,
        tensor_parallel=[1],
        keep_replicas=False,
        preemption=True,
        one_seed=False,
        seed=0,
    )


def test_a_rule_for_every_iteration_is_taken() -> None:
    assert isinstance(rule(), BatchRule)
    assert placement(rule()).planned_s == 0.0


def test_batches_of_whole_requests_are_refused() -> None:
    whole = RequestBatches(max_batch_requests=4, max_wait_s=0.0, refills=False, pads_prompts=True)
    said = f"stages are planned for batches refilled every iteration, not for {whole}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        placement(whole)
