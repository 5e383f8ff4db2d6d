"""Real vLLM, in this process and as a Ray actor: batches, tokens, arrivals, loss of a process."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from baselines.srtf import Srtf
from harness.costs.iteration import IterationTable
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import RequestId, Service, ServiceId
from harness.interface.events import Arrived, Event
from harness.interface.policies import SchedulingPolicy, System
from harness.policy_checks import IterationStep, assert_same
from harness.predictors.oracle import Oracle
from harness.tests.support.batches import Watched, watched
from harness.tests.support.loads import closed
from harness.tests.support.policies import Paused
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule, workload
from harness.workloads.workload import Workload
from systems.ssjf.policy import Ssjf

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.engines.vllm.engine import Vllm  # noqa: E402
from harness.engines.vllm.ray import GroupLost, RayGroup  # noqa: E402
from harness.engines.vllm.run import VllmRun  # noqa: E402
from harness.tests.support.real_engine import (  # noqa: E402
    BLOCK,
    BLOCKS,
    MAX_NUM_SEQS,
    TOKENS,
    engine,
    kept_engine,
    write_weights,
)

CHUNKS = rule(chunked_prefill=True, max_num_seqs=MAX_NUM_SEQS, tokens=TOKENS)


class Timed(Watched):
    """Also keeps when every request came."""

    subscribes = Watched.subscribes | {Arrived}

    def __init__(self, inner: SchedulingPolicy) -> None:
        super().__init__(inner)
        self.came_s: dict[int, float] = {}

    def observe(self, event: Event) -> None:
        """Keep it."""
        if isinstance(event, Arrived):
            self.came_s[int(event.request.id)] = event.now_s
        else:
            super().observe(event)


@dataclass(frozen=True)
class Seconds(LinearCosts):
    """Every iteration takes a second, whatever it computes."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Bases only, counted once."""
        one, none = np.ones(1025), np.zeros(1025)
        return IterationTable(one, none, none, none, one, none, none, np.ones(1))


def load(count: int, *, timed: bool, services: int = 1) -> Workload:
    """Requests with prompts of up to 90 tokens and answers of up to 60."""
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(4, 90, count), rng.integers(1, 60, count)
    gaps = rng.exponential(0.01, count) if timed else np.zeros(count)
    made = workload(prompts.tolist(), outputs.tolist(), np.cumsum(gaps).tolist(), services)
    short = tuple(Service(s.id, 100, 1024) for s in made.services)
    return replace(made, services=short)


def serve(
    served_by: Any, work: Workload, policy: SchedulingPolicy, *groups: tuple[str, tuple[int, ...]]
) -> Recorder:
    """Run it under a policy that is told the true lengths."""
    recorder = Recorder()
    placement = Everywhere(*(groups or (("m", (0,)),)))
    predictor = Oracle().of(work, 0)
    system = System("test", policy, RoundRobin(), placement, predictor=predictor)
    served_by.run(work, system, recorder)
    return recorder


def simulated(work: Workload, policy: SchedulingPolicy) -> list[IterationStep]:
    """The simulator's batches when every iteration takes a second."""
    seen = watched(policy)
    simulator = Simulator(
        cluster=cluster(1),
        costs=Seconds(blocks=BLOCKS, block=BLOCK, load=0.0),
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=TOKENS,
        fast_forward=False,
    )
    serve(simulator, work, seen)
    return seen.steps


@pytest.fixture
def loaded() -> Vllm:
    """An engine that keeps its model: each test would start another."""
    return kept_engine()


@pytest.mark.parametrize(
    ("policy", "timed"),
    [
        (lambda: Fcfs(rule=CHUNKS), False),
        (lambda: Fcfs(rule=CHUNKS), True),
        (lambda: Ssjf(rule=CHUNKS, aging_tokens_per_s=0.0), True),
        (lambda: Srtf(rule=replace(CHUNKS, max_num_seqs=8)), True),
        (lambda: Paused(max_num_seqs=12), True),
    ],
    ids=["backlog", "arrival", "shortest", "preempts", "pauses"],
)
def test_the_real_engine_runs_the_simulators_batches(
    loaded: Vllm, policy: Callable[[], SchedulingPolicy], timed: bool
) -> None:
    """Arrivals are replayed at the iteration before which they came; times are not compared."""
    work, real = load(70, timed=timed), Timed(policy())
    frame = serve(loaded, work, real).requests
    starts = np.array([start_s for start_s, _ in real.steps])
    came = [int((starts < real.came_s[r]).sum()) for r in range(len(work))]
    order = np.argsort(came, kind="stable")
    assert (order == np.arange(len(work))).all()
    replayed = replace(work, arrival_s=np.array(came, np.float64))
    ours = [(0.0, tokens) for _, tokens in simulated(replayed, policy())]
    assert_same(ours, [(0.0, tokens) for _, tokens in real.steps])
    np.testing.assert_array_equal(frame["output_tokens"], work.output_tokens)
    assert (frame["lag_s"] >= 0.0).all()


def test_a_run_between_sweeps_keeps_speed_and_configuration(loaded: Vllm) -> None:
    """Designed batches before it and after it; the engine that it leaves loaded is the same."""
    serve(loaded, load(1, timed=False), Fcfs(rule=CHUNKS))
    only = dict([*loaded.loaded.items()][-1:])
    before = only.copy()
    timed = replace(loaded, speed_sweep=True, loaded=only)
    recorder = serve(timed, load(5, timed=False), Fcfs(rule=CHUNKS))
    speed = recorder.speed
    assert speed is not None
    assert {*speed["when"]} == {"before", "after"}
    assert {*speed["service"]} == {"m"}
    assert (speed[["prepare_s", "forward_s", "other_s"]].sum(axis=1) > 0).all()
    ((resolved,),) = [[*group.values()] for group in recorder.engines.values()]
    kept = {"kv_blocks": BLOCKS, "block_tokens": BLOCK, "max_num_seqs": MAX_NUM_SEQS}
    assert {name: resolved[name] for name in kept} == kept
    assert only == before


@pytest.mark.parametrize("think_s", [0.0, 0.02])
def test_clients_send_when_they_have_been_answered(loaded: Vllm, think_s: float) -> None:
    policy = Timed(Fcfs(rule=CHUNKS))
    frame = serve(loaded, closed(load(30, timed=False), 4, think_s), policy).requests
    answers_s, sent_s = np.sort(frame["finished_s"]), frame["arrival_s"].to_numpy()
    assert sent_s[:4].tolist() == [0.0] * 4
    late_s = sent_s[4:] - answers_s[:26] - think_s
    assert late_s.min() >= 0.0
    came_s = np.array([policy.came_s[request] for request in range(30)])
    assert (came_s >= sent_s).all()
    assert (frame["lag_s"] >= 0.0).all()
    assert max(len(tokens) for _, tokens in policy.steps) == 4


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a tokenizer of a few words."""
    folder = tmp_path_factory.mktemp("weights")
    write_weights(folder)
    _add_tokenizer(folder)
    return folder


def _add_tokenizer(folder: Path) -> None:
    """A tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {
        word: 10 + i
        for i, word in enumerate(["the", "cat", "sat", "on", "a", "mat", "and", "slept"])
    }
    tokenizer = Tokenizer(models.WordLevel({"?": 5, **words}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
    made.save_pretrained(folder)


@pytest.fixture
def weighted(weights: Path) -> Vllm:
    """An engine of that model, which it keeps."""
    return kept_engine(models={"m": str(weights)}, load_format="auto", keep_answers=True)


@pytest.mark.parametrize("caches", [False, True])
def test_order_and_preemption_never_change_an_answer(weighted: Vllm, caches: bool) -> None:
    built = replace(weighted, prefix_caching=caches)
    work = load(40, timed=True)
    answers, preemptions = [], []
    for policy in (_fcfs(), Srtf(rule=replace(CHUNKS, max_num_seqs=5))):
        frame = serve(built, work, policy).requests
        answers.append(dict(built.answers))
        preemptions.append(frame["preemptions"].sum())
    assert answers[0] == answers[1]
    assert [len(answers[0][r]) for r in range(40)] == work.output_tokens.tolist()
    assert len({token for tokens in answers[0].values() for token in tokens}) > 50
    assert preemptions[1] > 0


@pytest.mark.parametrize("forces", [True, False])
def test_real_text_is_read_by_the_models_tokenizer(
    weighted: Vllm, tmp_path: Path, forces: bool
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on a mat\n\nthe cat slept\n", encoding="utf-8")
    work = load(6, timed=False)
    built = replace(weighted, texts=str(texts), forces_lengths=forces)
    frame = serve(built, work, _fcfs()).requests
    answers = built.answers
    assert [len(answers[r]) for r in range(6)] == frame["output_tokens"].tolist()
    if forces:
        np.testing.assert_array_equal(frame["output_tokens"], work.output_tokens)
    else:
        assert (frame["output_tokens"] <= work.max_output_tokens).all()
        assert (frame["output_tokens"] != work.output_tokens).any()


def test_texts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        serve(engine(texts=str(tmp_path / "none.txt")), load(2, timed=False), _fcfs())


def _fcfs() -> SchedulingPolicy:
    return Fcfs(rule=CHUNKS)


@pytest.mark.parametrize("on_loss", ["fail", "lost"])
def test_a_lost_process_ends_the_run_or_is_gone_on_without(
    on_loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`test_moved_service` has a process that is killed, and started again."""
    run, died = Mock(), RayGroup(Mock(), Mock(), Mock())
    run.options.on_loss = on_loss
    died.unanswered = {RequestId(7): Mock(facts=Mock(id=7))}
    said, error = "m@0 died; 1 of its requests are unanswered", GroupLost("m@0 died")
    if on_loss == "fail":
        with pytest.raises(ValueError, match=f"^{said}$"):
            VllmRun._lost(run, died, error)
        return
    VllmRun._lost(run, died, error)
    run.lifecycle.give_up.assert_called_once_with([7])
    assert capsys.readouterr().err == f"{said}\n"
    assert not died.unanswered


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="on_loss=maybe is none of"):
        engine(on_loss="maybe")
