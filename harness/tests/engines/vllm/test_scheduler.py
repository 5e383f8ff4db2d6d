"""The scheduler that vLLM builds from ours: what it tells, and what it survives."""

from types import SimpleNamespace

import pytest

from baselines.fcfs import Fcfs
from harness.core.ledger_problems import problems
from harness.engines.vllm.carried import extra_args_of
from harness.interface.entities import (
    AppId,
    LengthPrediction,
    Request,
    RequestId,
    TenantId,
)
from harness.interface.events import Arrived, Event, Finished, Iterated, Predicted
from harness.tests.support.serving import SERVICE, a_group, rule
from harness.tests.support.telltale import TELLTALE, Nosy

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.request import Request as EngineRequest  # noqa: E402
from vllm.v1.request import RequestStatus  # noqa: E402

from harness.tests.support.scheduler_bench import Bench, Ranked  # noqa: E402


def test_priorities_may_change_while_requests_run() -> None:
    """Two slots: who ranks first runs from the next iteration on, and the others keep their KV."""
    policy = Ranked(max_num_seqs=1)
    bench = Bench(policy)
    for number in range(3):
        bench.add(number, 20, 30)
    policy.rank = {0: 0}
    ran = [bench.step() for _ in range(5)]
    policy.rank = {2: 0, 0: 1}
    ran += [bench.step() for _ in range(3)]
    policy.rank = {0: 0}
    ran += [bench.step() for _ in range(2)]
    names = [list(step) for step in ran]
    assert names == [["r0"]] * 5 + [["r2"]] * 3 + [["r0"]] * 2
    assert ran[8] == {"r0": 1}  # it had kept its KV


def test_no_view_leads_to_the_length_that_vllm_was_told() -> None:
    nosy = Nosy(Fcfs(rule=rule(chunked_prefill=True)))
    bench = Bench(nosy, blocks=2000)
    for number in range(6):
        facts_say = bench.add(number, 1100, TELLTALE)
        assert facts_say.max_tokens == TELLTALE
    for _ in range(40):
        bench.step()
    assert nosy.visited > 200


def test_events_in_order() -> None:
    """As the simulator gives them: an iteration, then those it has answered, then arrivals."""
    policy = Ranked(max_num_seqs=2)
    bench = Bench(policy)
    bench.add(0, 5, 1)
    bench.add(1, 5, 2)
    bench.scheduler.predict(RequestId(1), LengthPrediction((2,)))
    bench.step()
    bench.step()
    told = [(type(event), event.now_s) for event in policy.heard]
    assert told == [
        (Arrived, 0.0),
        (Arrived, 0.0),
        (Predicted, 0.0),
        (Iterated, 1.0),
        (Finished, 1.0),
        (Iterated, 2.0),
        (Finished, 2.0),
    ]
    first = policy.heard[3]
    assert isinstance(first, Iterated)
    assert (dict(first.batch.tokens), dict(first.new_tokens)) == ({0: 5, 1: 5}, {0: 1, 1: 1})
    assert [i.finished for i in bench.kept] == [(0,), (1,)]
    assert [sorted(i.prompts) for i in bench.kept] == [[0, 1], []]


@pytest.mark.parametrize("attached", [True, False])
def test_who_is_given_up_from_outside_holds_nothing(attached: bool) -> None:
    """A client that goes: while waiting, and while holding KV."""
    policy = Ranked(max_num_seqs=2)
    bench = Bench(policy, attached=attached)
    for number in range(3):
        bench.add(number, 40, 50)
    for _ in range(3):
        bench.step()
    bench.scheduler.finish_requests(["r0", "r2"], RequestStatus.FINISHED_ABORTED)
    served = bench.scheduler.served
    assert list(served.requests) == [1]
    assert list(served.kv.holders) == [1]
    assert sum(isinstance(e, Finished) for e in policy.heard) == (0 if attached else 2)
    bench.drain()
    assert not served.kv.holders
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == bench.blocks


def test_kv_that_vllm_drops_by_itself_is_dropped_from_the_ledger() -> None:
    bench = Bench(Fcfs(rule=rule(chunked_prefill=True)))
    requests = [bench.add(number, 40, 20) for number in range(4)]
    for _ in range(5):
        bench.step()
    assert bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert not bench.scheduler.served.kv.holders
    bench.drain()
    assert [r.num_output_tokens for r in requests] == [20] * 4


def test_a_request_that_is_not_ready_waits_unseen() -> None:
    """vLLM compiles a grammar meanwhile; its own check says when it is done."""
    policy = Ranked(max_num_seqs=4)
    bench = Bench(policy)
    request = EngineRequest(
        "r7",
        [1] * 9,
        SamplingParams(max_tokens=2, ignore_eos=True, extra_args=_carried(7)),
        None,
    )
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    request.structured_output_request = SimpleNamespace(grammar=None)
    bench.scheduler.add_request(request)
    bench.add(1, 5, 4)
    assert list(bench.step()) == ["r1"]
    assert policy.heard[0] == Arrived(0.0, _facts(policy.heard[0]), a_group("m", 0).id)
    request.structured_output_request = None
    request.status = RequestStatus.WAITING
    assert list(bench.step()) == ["r1", "r7"]


def _facts(event: Event) -> Request:
    assert isinstance(event, Arrived)
    assert event.request.id == 1
    return event.request


def _carried(number: int) -> dict[str, object]:
    facts = Request(RequestId(number), SERVICE, AppId(number), TenantId(""), 0.0, 9, 9)
    return extra_args_of(facts)


def test_nothing_runs_while_paused() -> None:
    bench = Bench(Fcfs(rule=rule(chunked_prefill=True)))
    bench.add(0, 9, 5)
    bench.step()
    for state in (PauseState.PAUSED_ALL, PauseState.PAUSED_NEW):
        bench.scheduler.set_pause_state(state)
        assert bench.step() == {}
    bench.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert bench.step() == {"r0": 1}


@pytest.mark.parametrize("chunk", [7, 16, 40, 1000])
def test_a_cached_prefix_spares_work_and_never_oversteps_the_plan(chunk: int) -> None:
    """Eight equal prompts of 100 tokens: what was decided is how far each gets."""
    bench = Bench(Ranked(max_num_seqs=2, chunk=chunk), blocks=40, caching=True)
    requests = [bench.add(number, 100, 4) for number in range(8)]
    computed = 0
    while bench.scheduler.has_unfinished_requests():
        before = {r.request_id: r.num_computed_tokens for r in requests}
        step = bench.step()
        computed += sum(step.values())
        decided = {f"r{r}": n for r, n in bench.scheduler.decided.launch[0].tokens.items()}
        for request in requests:
            if request.request_id in step:
                got = request.num_computed_tokens - before[request.request_id]
                assert got == decided[request.request_id]
        assert not problems(bench.scheduler.served.kv)
    assert all(r.num_output_tokens == 4 for r in requests)
    assert computed <= 8 * 103
    assert (computed < 8 * 103 - 90) == (chunk == 1000)
