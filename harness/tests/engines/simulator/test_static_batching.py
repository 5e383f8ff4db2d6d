"""Batches of whole requests, by hand: half a second for prompts, a quarter for a decode."""

import pytest

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, PriorityOrder, StaticBatching
from harness.tests.support.serving import FlatCosts, serve, workload

FREE = FlatCosts(load=0.0)


def batches(max_num_seqs: int, *, wait_s: float = 0.0, refills: bool = False) -> StaticBatching:
    return StaticBatching(
        max_num_seqs=max_num_seqs, max_wait_s=wait_s, refills=refills, pads_prompts=True
    )


def finished_s(load_of: tuple[list[int], list[float]], rule: StaticBatching) -> list[float]:
    outputs, arrivals_s = load_of
    load = workload([10] * len(outputs), outputs, arrivals_s)
    seconds: list[float] = serve(load, Fcfs(rule=rule), costs=FREE).requests["finished_s"].tolist()
    return seconds


def test_nobody_joins_and_all_return_with_the_longest() -> None:
    """r0 (3 tokens) and r1 (1) start at 0, r2 (1) comes at 0.1 and waits though r1's slot is free.

    Prompts until 0.5 s, two decodes until 1 s; then r2 alone until 1.5 s.
    """
    assert finished_s(([3, 1, 1], [0.0, 0.0, 0.1]), batches(2)) == [1.0, 1.0, 1.5]


def test_a_batch_waits_for_more_or_for_its_oldest() -> None:
    """Two slots, 1 s. r0 (0 s) and r1 (0.6 s) fill a batch at 0.6 s; r2 (2 s) waits to 3 s."""
    load = ([1, 1, 1], [0.0, 0.6, 2.0])
    assert finished_s(load, batches(2, wait_s=1.0)) == pytest.approx([1.1, 1.1, 3.5])


def test_a_refilled_batch_ends_at_its_first_answer() -> None:
    """r0 (4 tokens) and r1 (1): at 0.5 s r1 is answered and r2 (1), there since 0.1 s, takes over.

    r2's prompt and r0's second token take 0.75 s together, then r0 needs two decodes more.
    """
    ends_s = finished_s(([4, 1, 1], [0.0, 0.0, 0.1]), batches(2, refills=True))
    assert ends_s == pytest.approx([1.75, 0.5, 1.25])


class LaterFirst(Fcfs):
    """Whoever has come last goes first."""

    def __init__(self, *, rule: StaticBatching) -> None:
        order = PriorityOrder(lambda table: -table.arrival_s, rule)
        self._decision = Decision(priority_order=order)


def test_who_has_begun_and_is_passed_over_is_preempted_and_keeps_its_kv() -> None:
    """r0 (4 tokens) and r1 (1) begin; r1 ends at 0.5 s, and r2 and r3 (2), better, go on till 1.25.

    Then r0 takes its three decodes up to 2 s, without its prompt again.
    """
    load = workload([10] * 4, [4, 1, 2, 2], [0.0, 0.0, 0.1, 0.2])
    frame = serve(load, LaterFirst(rule=batches(2, refills=True)), costs=FREE).requests
    assert frame["finished_s"].tolist() == pytest.approx([2.0, 0.5, 1.25, 1.25])
    assert frame["preemptions"].tolist() == [1, 0, 0, 0]
    assert frame["preempted_s"].tolist() == pytest.approx([0.75, 0.0, 0.0, 0.0])


def test_tokens_returned_with_the_batch_come_first_at_its_end() -> None:
    load = workload([10, 10], [3, 1])
    whole = serve(load, Fcfs(rule=batches(2)), costs=FREE).requests
    assert whole["first_token_s"].tolist() == [1.0, 1.0]
    refilled = serve(load, Fcfs(rule=batches(2, refills=True)), costs=FREE).requests
    assert refilled["first_token_s"].tolist() == [0.5, 0.5]


def test_the_longest_answers_are_promised_kv() -> None:
    """14 blocks of 4 tokens; a request may need 10 + 15 tokens, 7 blocks: two at a time."""
    load = workload([10] * 3, [10] * 3)
    frame = serve(
        load, Fcfs(rule=batches(3)), costs=FlatCosts(blocks=14, block=4, load=0.0)
    ).requests
    assert frame["started_s"].tolist() == [0.0, 0.0, 2.75]
    assert frame["preemptions"].sum() == 0


@pytest.mark.parametrize(
    ("max_num_seqs", "wait_s", "sentence"),
    [
        (0, 0.0, "rule.max_num_seqs is 0, it must be at least 1"),
        (1, -1.0, "rule.max_wait_s is -1.0, it must be at least 0"),
        (1, float("inf"), "rule.max_wait_s is inf, it must be at least 0"),
    ],
)
def test_rules_under_which_nothing_runs_are_refused(
    max_num_seqs: int, wait_s: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        batches(max_num_seqs, wait_s=wait_s)


def test_more_requests_than_the_engine_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_num_seqs=9999 exceeds the engine's"):
        finished_s(([1], [0.0]), batches(9999))


def test_the_log_has_a_row_for_prompts_and_one_for_the_decodes_after_them() -> None:
    """r0 (3 tokens) and r1 (1) as above: half a second for prompts, then two decodes of both."""
    recorder = Recorder(keep_iterations=True)
    load = workload([10, 20], [3, 1])
    serve(load, Fcfs(rule=batches(2)), costs=FREE, recorder=recorder)
    log = recorder.iteration_frame()
    assert log is not None
    columns = ["start_s", "duration_s", "iterations", "prefill_requests", "prefill_padded_tokens"]
    assert log[columns].to_numpy().tolist() == [[0.0, 0.5, 1, 2, 40], [0.5, 0.5, 2, 0, 0]]
    decodes = ["decode_requests", "context_tokens", "longest_tokens"]
    assert log[decodes].to_numpy().tolist() == [[0, 0, 0], [2, 32, 21]]
