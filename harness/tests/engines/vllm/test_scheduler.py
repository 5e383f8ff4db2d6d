"""The scheduler that vLLM builds from ours: what it touches, tells, refuses and survives."""

import inspect
from dataclasses import dataclass, field
from multiprocessing import current_process
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.engines.vllm.carried import extra_args_of
from harness.interface.decisions import Decision
from harness.interface.draft import Draft, continuous_batch
from harness.interface.entities import (
    AppId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    TenantId,
)
from harness.interface.events import Arrived, Event, Finished, Iterated, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.engines.simulator.test_loop import TELLTALE, Nosy
from harness.tests.support.serving import SERVICE, a_group, rule

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.core.sched.request_queue import RequestQueue  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.request import Request as EngineRequest  # noqa: E402
from vllm.v1.request import RequestStatus  # noqa: E402

from harness.engines.vllm import dry as vllm_dry  # noqa: E402
from harness.engines.vllm import scheduler as vllm_scheduler  # noqa: E402
from harness.engines.vllm.planned_queue import PlannedQueue  # noqa: E402
from harness.engines.vllm.scheduler import PolicyScheduler  # noqa: E402
from harness.engines.vllm.served import Iteration  # noqa: E402


@dataclass
class Ranked:
    """Runs whom `rank` puts first, in chunks; `rank` may change at any time."""

    max_num_seqs: int = 2
    chunk: int = 1000
    rank: dict[int, int] = field(default_factory=dict)
    heard: list[Event] = field(default_factory=list)
    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {Arrived, Predicted, Iterated, Finished}
    )

    def observe(self, event: Event) -> None:
        """Keep it."""
        self.heard.append(event)

    def schedule(self, view: GroupView) -> Decision:
        """Best rank first; others pause and keep their KV."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=lambda r: self.rank.get(r.facts.id, 99))
        for request in order[: self.max_num_seqs]:
            missing = request.context_tokens - request.kv_tokens
            draft.try_run(request, min(missing, self.chunk, draft.tokens_left))
        return draft.decision()


@dataclass
class Bench:
    """A scheduler with a fake runner and a clock that goes a second per step."""

    policy: SchedulingPolicy
    blocks: int = 64
    caching: bool = False
    attached: bool = True
    now_s: float = 0.0
    kept: list[Iteration] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Build it."""
        config = vllm_dry._config(16, 256, 4096)
        config.cache_config.enable_prefix_caching = self.caching
        try:
            self.scheduler = vllm_dry.new_scheduler(
                PolicyScheduler,
                kv_blocks=self.blocks,
                block_tokens=16,
                max_num_seqs=16,
                max_num_batched_tokens=256,
                max_context_tokens=4096,
            )
        finally:
            config.cache_config.enable_prefix_caching = False
        self.scheduler.attach(
            policy=self.policy,
            group=a_group("m", 0) if self.attached else None,
            service=Service(SERVICE, 100, 4096),
            clock=lambda: self.now_s,
            on_iteration=self.kept.append,
        )
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(16, sha256) if self.caching else None

    def add(self, number: int, prompt: int, output: int, **said: object) -> Any:
        """One more request."""
        facts = Request(
            RequestId(number), SERVICE, AppId(number), TenantId(""), self.now_s, prompt, output + 5
        )
        arguments = extra_args_of(facts) if self.attached else said
        request = EngineRequest(
            f"r{number}",
            list(range(prompt)),
            SamplingParams(max_tokens=output, ignore_eos=True, extra_args=arguments),
            None,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> dict[str, int]:
        """Schedule and account for one iteration; tokens computed by name."""
        output = self.scheduler.schedule()
        self.now_s += 1.0
        vllm_dry.account_for(self.scheduler, output)
        computed: dict[str, int] = output.num_scheduled_tokens
        return computed

    def drain(self, most: int = 5000) -> list[dict[str, int]]:
        """Step until nobody is left."""
        steps = []
        while self.scheduler.has_unfinished_requests():
            steps.append(self.step())
            assert len(steps) < most
        return steps


def test_what_is_touched_of_vllm_is_there() -> None:
    """Private names and signatures; the message of a failure says what has changed."""
    parameters = {
        Scheduler._preempt_request: ["request", "timestamp"],
        Scheduler._mamba_block_aligned_split: [
            "request",
            "num_new_tokens",
            "num_new_local_computed_tokens",
        ],
        Scheduler._enqueue_waiting_request: ["request"],
        getattr(Scheduler, vllm_scheduler._READIES, None): ["request"],
        Scheduler.finish_requests: ["request_ids", "finished_status"],
        Scheduler.update_from_output: ["scheduler_output", "model_runner_output"],
    }
    for function, names in parameters.items():
        assert function is not None, vllm_scheduler._READIES
        has = list(inspect.signature(function).parameters)[1:]
        assert has[: len(names)] == names, function.__qualname__
    bench = Bench(Ranked())
    for name in (
        "requests",
        "running",
        "waiting",
        "prev_step_scheduled_req_ids",
        "need_mamba_block_aligned_split",
        "scheduler_reserve_full_isl",
        "max_num_running_reqs",
        "max_num_scheduled_tokens",
        "pause_state",
        "connector",
        "ec_connector",
        "use_pp",
        "lora_config",
        "max_num_encoder_input_tokens",
    ):
        assert hasattr(bench.scheduler, name), name
    assert hasattr(bench.scheduler.kv_cache_manager, "watermark_blocks")
    source = inspect.getsource(Scheduler.schedule)
    assert source.count("self._mamba_block_aligned_split(") == 2
    assert "self.scheduler_reserve_full_isl" in source
    asked = {name for name in RequestQueue.__abstractmethods__ if not hasattr(PlannedQueue, name)}
    assert asked == set()


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


def test_a_batch_in_the_order_decided_with_the_chunks_decided() -> None:
    policy = Ranked(max_num_seqs=3, chunk=7)
    policy.rank = {2: 0, 1: 1, 0: 2}
    bench = Bench(policy)
    for number in range(3):
        bench.add(number, 20, 3)
    first = [list(bench.step().items()) for _ in range(3)]
    assert first[0] == first[1] == [("r2", 7), ("r1", 7), ("r0", 7)]
    assert first[2] == [("r2", 6), ("r1", 6), ("r0", 6)]


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
    ledger = bench.scheduler.served.kv
    assert list(bench.scheduler.served.requests) == [1]
    assert ledger.held_tokens(SERVICE) == ledger.holding(RequestId(1)) > 0
    assert sum(isinstance(e, Finished) for e in policy.heard) == (0 if attached else 2)
    bench.drain()
    assert ledger.held_tokens(SERVICE) == 0
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == bench.blocks


def test_kv_that_vllm_drops_by_itself_is_dropped_from_the_ledger() -> None:
    bench = Bench(Fcfs(rule=rule(chunked_prefill=True)))
    requests = [bench.add(number, 40, 20) for number in range(4)]
    for _ in range(5):
        bench.step()
    assert bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert bench.scheduler.served.kv.held_tokens(SERVICE) == 0
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


def test_a_difference_names_the_first_request() -> None:
    policy = Ranked(max_num_seqs=2)
    bench = Bench(policy)
    bench.add(0, 9, 5)
    bench.add(1, 9, 5)
    split = bench.scheduler._mamba_block_aligned_split
    bench.scheduler._mamba_block_aligned_split = lambda r, n, *x: min(split(r, n, *x), 4)
    with pytest.raises(RuntimeError, match="vLLM runs 4 tokens of r0, 9 were decided"):
        bench.step()


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("async_scheduling", True, "--no-async-scheduling"),
        ("enable_chunked_prefill", False, "chunked prefill must be on"),
    ],
)
def test_settings_under_which_decisions_would_not_hold_are_refused(
    setting: str, value: bool, says: str
) -> None:
    config = vllm_dry._config(16, 256, 4096).scheduler_config
    before = getattr(config, setting)
    setattr(config, setting, value)
    try:
        with pytest.raises(ValueError, match=says):
            Bench(Ranked())
    finally:
        setattr(config, setting, before)


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
        assert not bench.scheduler.served.kv.problems()
    assert all(r.num_output_tokens == 4 for r in requests)
    assert computed <= 8 * 103
    assert (computed < 8 * 103 - 90) == (chunk == 1000)


@dataclass
class Steady:
    """In order of arrival, steady when all decode."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    asked: int = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Fill, and promise."""
        self.asked += 1
        draft = Draft(view)
        continuous_batch(draft, list(view.requests.values()))
        waits = any(r.generated_tokens == 0 for r in view.requests.values())
        return draft.decision(steady=not waits)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=14),
    late=st.integers(0, 20),
    blocks=st.integers(9, 40),
    chunked_prefill=st.booleans(),
    steady=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_decision_used_again_is_the_decision_that_would_be_made(
    sizes: list[tuple[int, int]], late: int, blocks: int, chunked_prefill: bool, steady: bool
) -> None:
    """The same steps, ledger and attained time with and without using decisions again."""
    runs = []
    for again in (True, False):
        policy: SchedulingPolicy
        policy = (
            Steady()
            if steady
            else Fcfs(rule=rule(chunked_prefill=chunked_prefill, max_num_seqs=5, tokens=140))
        )
        bench = Bench(policy, blocks=blocks)
        if not again:
            bench.scheduler.served._note_repeat = lambda decision, *, stands: None
        steps: list[object] = []
        for number, (prompt, output) in enumerate(sizes):
            if number == len(sizes) // 2:
                steps += [bench.step() for _ in range(late)]
            bench.add(number, prompt, output)
        while bench.scheduler.has_unfinished_requests():
            steps.append(bench.step())
            if len(steps) % 7 == 0:
                served = bench.scheduler.served
                steps.append([served.kv.holding(r) for r in served.requests])
                steps.append([view.gpu_s for view in served.requests.values()])
                assert not served.kv.problems()
        runs.append(steps)
    assert runs[0] == runs[1]


def test_a_steady_decision_is_not_asked_for_again() -> None:
    policy = Steady()
    bench = Bench(policy, blocks=2000)
    bench.add(0, 9, 200)
    bench.drain()
    assert policy.asked < 12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{_target_: harness.nowhere.Nothing}",
            "holds no policy: _target_=harness.nowhere.Nothing names no class",
        ),
        ("{_target_: baselines.fcfs.Fcfs}", "holds no policy: rule is missing, Fcfs needs it"),
        (
            "{_target_: baselines.fcfs.Fcfs, rule: {_target_: harness.decisions.BatchRule}}",
            "holds no policy: rule._target_: there is no harness.decisions.BatchRule; it is now "
            "harness.interface.decisions.ContinuousBatching",
        ),
        ("{_target_: baselines.srtf.Srtf, seats: 4}", "there is no seats; it is now max_num_seqs"),
        ("[1, 2]", "holds no policy: the node has no _target_"),
        ("{_target_: [", "holds no policy"),
        ("", "holds no policy"),
    ],
)
def test_a_file_without_a_policy_is_refused_when_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    monkeypatch.setenv("SCHEDULER_POLICY", str(path))
    with pytest.raises(ValueError, match=says):
        Bench(Ranked())


def test_a_server_without_a_policy_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of vLLM's own nobody could attach one."""
    monkeypatch.delenv("SCHEDULER_POLICY", raising=False)
    monkeypatch.setattr(current_process(), "name", "EngineCore")
    with pytest.raises(ValueError, match="no policy: set SCHEDULER_POLICY"):
        Bench(Ranked())
