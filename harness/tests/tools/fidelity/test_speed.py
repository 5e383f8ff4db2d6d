"""How fast a machine was, and what is simulated at that speed."""

import pickle

import pandas as pd
import pytest

from harness.config.paths import PROFILES
from harness.costs.iteration import iteration_seconds
from harness.costs.model import PARTS, ProfileCosts
from harness.interface.entities import ServiceId
from harness.tools.calibrate import raw
from harness.tools.fidelity.real_engine import speeds_of
from harness.tools.fidelity.speed import (
    AtSpeed,
    Speed,
    against,
    reference_of,
    short_runs,
    speed_of,
    speeds_between,
    totals_of,
)

TINY = ServiceId("tiny")
BATCHES = [  # prompts, their tokens, attended; decodes, their contexts, the longest
    (1, 100, 1e4, 0, 0, 0),
    (2, 150, 2e4, 8, 900, 200),
    (0, 0, 0.0, 8, 908, 201),
    (0, 0, 0.0, 1, 300, 300),
]
NAMES = ("prompts", "prompt_tokens", "attended", "decodes", "context_tokens", "longest_tokens")


@pytest.fixture(scope="module")
def costs() -> ProfileCosts:
    return ProfileCosts(
        gpu="CPU", profile_dir="cpu_vllm", memory_share=0.9, parts=PARTS, engine="vllm-sync"
    )


def seconds(costs: ProfileCosts) -> list[float]:
    """Of the batches."""
    table = costs.table(TINY, 1)
    return [
        iteration_seconds(table, prompts, tokens, tokens, attended, *decodes)
        for prompts, tokens, attended, *decodes in BATCHES
    ]


def measured(costs: ProfileCosts) -> pd.DataFrame:
    """The batches as a machine takes that is as fast as these costs."""
    rows = pd.DataFrame(BATCHES, columns=list(NAMES))
    return rows.assign(forward_s=seconds(costs), prepare_s=0.0, other_s=0.0)


def test_the_speed_of_a_machine_is_found_in_its_batches(costs: ProfileCosts) -> None:
    """Prompts take 1.5 times, decodes 1.2 times as long; a batch with both shares what is one."""
    slow = AtSpeed(costs, {"tiny": Speed(1.5, 1.2)})
    assert speed_of(measured(slow), costs, TINY) == pytest.approx((1.5, 1.2))
    assert speed_of(measured(costs), costs, TINY) == pytest.approx((1.0, 1.0))


def test_costs_at_a_speed(costs: ProfileCosts) -> None:
    slow = pickle.loads(pickle.dumps(AtSpeed(costs, {"tiny": Speed(1.5, 1.2)})))
    prompt_s, _, decode_s, _ = seconds(slow)
    assert (prompt_s, decode_s) == pytest.approx((1.5 * seconds(costs)[0], 1.2 * seconds(costs)[2]))
    assert slow.received_s(TINY, 1) == pytest.approx([1.2 * it for it in costs.received_s(TINY, 1)])
    other = ServiceId("small")
    assert slow.table(other, 1).decode_base_s[4] == costs.table(other, 1).decode_base_s[4]


def test_a_repetition_is_between_two_sweeps() -> None:
    assert speeds_between([Speed(1.0, 1.0), Speed(1.2, 1.4), Speed(1.0, 1.0)]) == [
        pytest.approx((1.1, 1.2)),
        pytest.approx((1.1, 1.2)),
    ]


def test_a_pause_of_the_machine_is_no_speed(costs: ProfileCosts) -> None:
    """The others took twice as long; the one that took 3 s more is one of them."""
    rows = measured(AtSpeed(costs, {"tiny": Speed(2.0, 2.0)}))
    rows["forward_s"] += [3.0, 0.0, 0.0, 0.0]
    assert speed_of(rows, costs, TINY) == pytest.approx((2.0, 2.0))


def test_stored_totals_give_the_speed_against_any_profile(costs: ProfileCosts) -> None:
    rows = measured(AtSpeed(costs, {"tiny": Speed(1.5, 1.2)}))
    swept = {
        "batches": rows[list(NAMES)].to_numpy().tolist(),
        "totals": [list(totals_of(rows, costs, TINY))],
    }
    prefill, decode = reference_of(costs, TINY)
    assert speeds_of(swept, costs, TINY) == [pytest.approx((1.5 / prefill, 1.2 / decode))]
    assert speeds_of(None, costs, TINY) == []


def test_the_speed_is_1_for_the_minutes_of_the_profile(costs: ProfileCosts) -> None:
    rows, facts = raw.read(PROFILES / "cpu_vllm" / "tiny.parquet")
    short = short_runs(rows, facts)
    assert 50 < len(short) < len(rows) / 8
    found = against(speed_of(short, costs, TINY), reference_of(costs, TINY))
    assert found == pytest.approx((1.0, 1.0))
    assert reference_of(costs, TINY) == pytest.approx((1.0, 1.0), abs=0.05)
    assert reference_of(costs, ServiceId("none")) == (1.0, 1.0)
