"""Orders that move, displace and set KV aside: replicas do what deciding every iteration does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.engines.state import LOG_COLUMNS
from harness.interface.decisions import (
    ContinuousBatching,
    Displaced,
    PreemptionMode,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.moving import MovingKey
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.loads import Load, assert_same_times, loads, waits_s
from harness.tests.support.policies import RULES, Restless
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import (
    Ordered,
    OrderedByPrediction,
    attained_quanta,
    attained_seconds,
    attained_tokens,
    doubling_budget_s,
    predicted_tokens,
    queue_of_five,
    queue_of_five_s,
    remaining_tokens,
    to_the_predicted_end,
)


def short_pieces(table: RequestTable) -> MovingKey:
    """Rises, falls and jumps; the last piece ends, and is told anew eight tokens later."""
    done = table.generated_tokens // 8 * 8.0
    ends = done[:, None] + np.array([3.0, 4.5, 8.0])
    return MovingKey(
        value=np.stack([done, 40.0 - done, 0.5 * table.prompt_tokens], axis=1),
        slope=np.tile([0.75, -1.0, 0.3], (len(done), 1)),
        until=ends,
    )


def longest_prompt(table: RequestTable) -> Floats:
    return -table.prompt_tokens.astype(np.float64)


KEYS = {
    "arrival": None,
    "longest prompt": longest_prompt,
    "remaining": remaining_tokens,
    "attained": attained_tokens,
    "quanta": attained_quanta,
    "attained seconds": attained_seconds,
    "queues of seconds": queue_of_five_s,
    "doubling budget": doubling_budget_s,
    "queues": queue_of_five,
    "short pieces": short_pieces,
    "predicted": predicted_tokens,
}
LATENCIES_S = (0.0, 0.0131, 0.1317)
RECEIVED_S = st.sampled_from([0.0, 0.0, 0.0037])


def reserved(name: str | None) -> object:
    """What is set aside: nothing, the same for all, what is predicted, or too little."""
    return {"all": 165, "predicted": to_the_predicted_end, "some": _some, None: None}[name]


def _some(table: RequestTable) -> Floats:
    """More than the prompt for some, less for others, nothing for the rest."""
    third = table.id % 3
    return np.where(third == 0, np.nan, table.prompt_tokens + (third - 1.5) * 40.0)


WAYS = (None, *Displaced, PreemptionMode.SWAP)


@pytest.mark.parametrize(
    ("key", "displaces"),
    [
        *((key, WAYS[at % len(WAYS)]) for at, key in enumerate(KEYS)),
        *(("predicted", how) for how in Displaced),
    ],
)
@given(
    load=loads(most=20),
    batch_rule=st.sampled_from(RULES),
    blocks=st.sampled_from([12, 17, 30, 200]),
    aside=st.sampled_from([None, None, "all", "predicted", "some"]),
    late_s=st.sampled_from(LATENCIES_S),
    load_s=st.sampled_from([0.0, 0.7]),
    swap_overlaps=st.booleans(),
    received_s=RECEIVED_S,
)
@settings(max_examples=8, deadline=None)
def test_same_times_with_and_without(
    key: str,
    displaces: Displaced | PreemptionMode | None,
    load: Load,
    batch_rule: ContinuousBatching,
    blocks: int,
    aside: str | None,
    late_s: float,
    load_s: float,
    swap_overlaps: bool,
    received_s: float,
) -> None:
    gives_way = isinstance(displaces, PreemptionMode)
    how = {"gives_way" if gives_way else "displaces": displaces}
    order = PriorityOrder(KEYS[key], batch_rule, reserve_tokens=reserved(aside), **how)  # type: ignore[arg-type]
    assert_same_times(
        lambda fast: serve(
            workload(*load),
            OrderedByPrediction(order),
            costs=LinearCosts(blocks=blocks, load=load_s, received_s_per_request=received_s),
            fast_forward=fast,
            predictor=Guess(late_s),
            swap_overlaps=swap_overlaps,
        )
    )


@pytest.mark.parametrize("key", [None, longest_prompt, queue_of_five, predicted_tokens])
@given(
    load=loads(most=20),
    refills=st.booleans(),
    max_num_seqs=st.sampled_from([1, 3, 6]),
    max_wait_s=st.sampled_from([0.0, 0.05, 0.4]),
    pads=st.booleans(),
    blocks=st.sampled_from([12, 17, 30, 200]),
    late_s=st.sampled_from(LATENCIES_S),
    received_s=RECEIVED_S,
)
@settings(max_examples=5, deadline=None)
def test_same_times_in_batches_of_whole_requests(
    key: object,
    load: Load,
    refills: bool,
    max_num_seqs: int,
    max_wait_s: float,
    pads: bool,
    blocks: int,
    late_s: float,
    received_s: float,
) -> None:
    batches = StaticBatching(
        max_num_seqs=max_num_seqs, max_wait_s=max_wait_s, refills=refills, pads_prompts=pads
    )
    assert_same_times(
        lambda fast: serve(
            workload(*load),
            OrderedByPrediction(PriorityOrder(key, batches)),  # type: ignore[arg-type]
            costs=LinearCosts(blocks=blocks, load=0.0, received_s_per_request=received_s),
            fast_forward=fast,
            predictor=Guess(late_s),
        )
    )


STATIC = StaticBatching(max_num_seqs=3, max_wait_s=0.05, refills=True, pads_prompts=True)


@pytest.mark.parametrize(
    "order",
    [
        PriorityOrder(queue_of_five, RULES[3], Displaced.PAUSE),
        PriorityOrder(attained_quanta, RULES[1], Displaced.RECOMPUTE, 165),
        PriorityOrder(queue_of_five, RULES[3], Displaced.SWAP),
        PriorityOrder(longest_prompt, STATIC),
    ],
    ids=["pauses", "recomputes", "swaps", "static"],
)
@given(
    load=loads(most=16),
    seed=st.integers(0, 999),
    waits_s=waits_s(4),
)
@settings(max_examples=5, deadline=None)
def test_same_times_when_groups_come_and_go(
    order: PriorityOrder, load: Load, seed: int, waits_s: list[float]
) -> None:
    """Two services on three GPUs, redeployed at random times while requests keep arriving."""
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=2),
            Ordered(order),
            Restless(seed, waits_s, 3),
            costs=UnevenCosts(blocks=17, load=0.37),
            fast_forward=fast,
            gpus=3,
        )
    )


def finished_s(order: PriorityOrder, load: Load) -> list[float]:
    """Half a second for any prompt, a quarter for any decode."""
    frame = serve(workload(*load), Ordered(order), costs=FlatCosts(load=0.0)).requests
    seconds: list[float] = frame["finished_s"].tolist()
    return seconds


ONE_SLOT = rule(chunked_prefill=False, max_num_seqs=1, tokens=256)


def test_the_least_attained_by_quanta_takes_turns_by_hand() -> None:
    """r0 (40 tokens) gives way to r1 (2) after its quantum of 32, at 0.5 + 31/4 = 8.25 s.

    r1 takes 0.75 s; r0, which has kept its KV, the 8 tokens left.
    """
    order = PriorityOrder(attained_quanta, ONE_SLOT, Displaced.PAUSE)
    assert finished_s(order, ([10, 10], [40, 2], [0.0, 0.1])) == pytest.approx([11.0, 9.0])


def test_a_budget_of_seconds_is_left_when_it_is_used_up_by_hand() -> None:
    """Budgets of 0.6 s, then of 1.2, then of 2.4.

    r0 computes its prompt and, with 0.1 s left, one decode, to 0.75 s; of its second budget it has
    1.05 s left. So r1 does the same, to 1.5 s. Of equals r0 comes first, and its budget only gets
    less: 5 decodes, to 2.75 s, use it up. r1 ends with 2 decodes, at 3.25 s, and r0 with 3.
    """
    order = PriorityOrder(doubling_budget_s, ONE_SLOT, Displaced.PAUSE)
    assert finished_s(order, ([10, 10], [10, 4], [0.0, 0.1])) == pytest.approx([4.0, 3.25])


def test_who_is_recomputed_begins_with_its_context_by_hand() -> None:
    """As above, but r0 computes its context again in half a second, which gives a token, too."""
    order = PriorityOrder(attained_quanta, ONE_SLOT, Displaced.RECOMPUTE)
    assert finished_s(order, ([10, 10], [40, 2], [0.0, 0.1])) == pytest.approx([11.25, 9.0])


def test_what_is_set_aside_bounds_who_is_admitted_by_hand() -> None:
    """32 of 64 blocks each: two run at once, the third begins when the first has ended."""
    order = PriorityOrder(None, rule(max_num_seqs=8), None, 512)
    frame = serve(
        workload([10, 10, 10], [3, 5, 1]), Ordered(order), costs=FlatCosts(blocks=64, load=0.0)
    ).requests
    assert frame["started_s"].tolist() == pytest.approx([0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    "order",
    [
        PriorityOrder(queue_of_five, RULES[3], Displaced.PAUSE, 165),
        PriorityOrder(queue_of_five, RULES[1], Displaced.PAUSE),
        PriorityOrder(longest_prompt, RULES[4], Displaced.RECOMPUTE, _some),
        PriorityOrder(queue_of_five, RULES[1], Displaced.SWAP, _some),
        PriorityOrder(longest_prompt, RULES[0], None, _some),
        PriorityOrder(longest_prompt, RULES[1], gives_way=PreemptionMode.SWAP),
        PriorityOrder(longest_prompt, RULES[4], None, _some, PreemptionMode.SWAP),
        PriorityOrder(longest_prompt, STATIC),
    ],
    ids=[
        "pauses",
        "pauses, whole prompts",
        "recomputes",
        "swaps",
        "reserves",
        "gives way by swap",
        "reserves, gives way by swap",
        "static",
    ],
)
@given(load=loads(most=16), blocks=st.sampled_from([12, 17, 200]))
@settings(max_examples=5, deadline=None)
def test_the_log_says_the_same_of_every_run_of_iterations(
    order: PriorityOrder, load: Load, blocks: int
) -> None:
    """What is computed, held, promised and free, who waits and who pauses, as each run begins."""
    logs = []
    for fast in (True, False):
        recorder = Recorder(keep_iterations=True)
        costs = LinearCosts(blocks=blocks, load=0.0)
        serve(workload(*load), Ordered(order), costs=costs, fast_forward=fast, recorder=recorder)
        frame = recorder.iteration_frame()
        assert frame is not None
        logs.append(frame[list(LOG_COLUMNS)])
    runs, steps = logs
    rows = np.searchsorted(steps["start_s"], runs["start_s"] - 1e-9)
    same = [name for name in LOG_COLUMNS if name not in ("duration_s", "iterations")]
    np.testing.assert_allclose(runs[same], steps[same].iloc[rows], rtol=1e-9, atol=1e-9)
    assert runs["duration_s"].sum() == pytest.approx(steps["duration_s"].sum(), rel=1e-9)
    assert runs["iterations"].sum() == steps["iterations"].sum()
