from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from baselines.round_robin import RoundRobin
from harness.config.yaml_files import read_policy
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision
from harness.interface.entities import LengthPrediction, Request, RequestId
from harness.interface.policies import System
from harness.interface.views import GroupView
from harness.policy_checks import IterationStep, assert_same
from harness.tests.support.batches import watched
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    cluster,
    serve,
    workload,
)
from harness.workloads.workload import Workload
from systems.ecoserve.ordering import PromptQueue, Ranking
from systems.ecoserve.policy import EcoServe

FILES = Path(__file__).parents[2] / "scenarios" / "policy"
BY_LENGTH = Ranking(
    prompt_s=0.05,
    token_s=0.04,
    scale=2.0,
    slack_ranges_s=[],
    kv_range_tokens=128,
    length_range_tokens=1,
)


FIRST_ENDS_S = 10.0


def policy(variant: str, of: type[EcoServe] = EcoServe, **settings: Any) -> EcoServe:
    """A variant without padding, reserve or buffer, that orders by length where it orders."""
    node = read_policy(FILES / f"ecoserve_{variant}.yaml") | {
        "padding": 0.0,
        "reserved_share": 0.0,
        "waiting_share": 1.0,
        "target_tokens": 64,
        "buffer_share": 0.0,
        "smallest_tokens": 4,
        "more_tokens": 4,
        "fill": "order",
    }
    ranking = None if node.pop("ranking") is None else BY_LENGTH
    return of(
        **{k: v for k, v in node.items() if k != "_target_"} | {"ranking": ranking} | settings
    )


def run(
    served_by: EcoServe, kv_tokens: int, outputs: list[int], predicted: list[int] | None = None
) -> pd.DataFrame:
    """Requests of 4 prompt tokens: 0.5 s for an iteration with prompts, 0.25 s for any other."""
    load = workload([4] * len(outputs), outputs, [0.0] * len(outputs), 1, max_context_tokens=80)
    costs = FlatCosts(blocks=kv_tokens, block=1, load=0.0)
    return serve(load, served_by, costs=costs, predictor=Truth(predicted or outputs)).requests


def test_loans_by_hand() -> None:
    """The host has 36 tokens; the guest of 15 lies in its second half, two of 7 in quarters.

    All prompts take 0.5 s, then 31, 14, 6 and 6 decodes are left. Without loans 60 tokens hold the
    host and one of the groups at a time.
    """
    eco = policy("full")
    assert run(eco, 60, [32, 15, 7, 7])["finished_s"].tolist() == [8.25, 4.0, 2.0, 2.0]
    assert eco.counts()["loans"] == 3
    for variant in ("d", "sd", "sdo"):
        ended_s = run(policy(variant), 60, [32, 15, 7, 7])["finished_s"].tolist()
        assert ended_s == [8.25, 11.75, 9.75, 9.75]


def test_an_overdue_guest_is_recalled_by_hand() -> None:
    """Predicted 15, true 20: it stops in the host's space, which the host needs 41 tokens for."""
    eco = policy("full")
    frame = run(eco, 41, [32, 20], [32, 15])
    assert frame["finished_s"].tolist() == [8.25, 9.5]
    assert frame["preemptions"].tolist() == [0, 1]
    assert {n: eco.counts()[n] for n in ("loans", "recalled", "overruns")} == {
        "loans": 1,
        "recalled": 1,
        "overruns": 1,
    }


def test_an_overdue_guest_is_swapped_out_by_hand() -> None:
    """Its 19 tokens of 100 bytes go to host memory and back at 1 MB/s: 1.9 ms each way.

    The host ends that much later; the guest has four tokens left and no prompt to compute again.
    """
    frame = run(policy("full", overdue="swap"), 41, [32, 20], [32, 15])
    assert frame["finished_s"].tolist() == pytest.approx([8.2519, 8.2519 + 0.0019 + 1.0])
    assert frame["swaps"].tolist() == [0, 1]


def test_an_underprediction_uses_the_reserve() -> None:
    """14 + 14 of 50 tokens are promised, 10 reserved: twice extended to 19 and 24, 2 are left.

    The second extension of each takes reserved KV.
    """
    eco = policy("d", reserved_share=0.2)
    frame = run(eco, 50, [20, 20], [10, 10])
    assert frame["finished_s"].tolist() == [5.25, 5.25]
    assert (eco.counts()["overruns"], eco.counts()["served_from_reserve"]) == (4, 2)


def test_an_underprediction_is_queued_with_the_rest_of_its_length() -> None:
    """12 + 26 of 38 tokens are promised. The first stops with 9 tokens when its 12 are full.

    It keeps its KV and waits for the second, which ends after 0.5 + 21 x 0.25 s; then 3 are left.
    """
    eco = policy("d")
    frame = run(eco, 38, [12, 22], [8, 22])
    assert frame["preemptions"].tolist() == [0, 0]
    assert eco.counts()["overruns"] == 1
    assert frame["finished_s"].tolist() == [6.5, 5.75]


def test_prompts_by_deadline_range_then_length() -> None:
    """Slack 2.05 s is in the last range until 0.05 s have passed; in a range the longest first."""
    ranking = Ranking(
        prompt_s=0.0,
        token_s=0.0,
        scale=1.0,
        slack_ranges_s=[0.5, 2.0],
        kv_range_tokens=128,
        length_range_tokens=128,
    )
    queue = PromptQueue(ranking)
    for name, (tokens, deadline_s) in enumerate([(100, 3.0), (300, 2.05), (10, 1.0), (120, 1.9)]):
        queue.push(RequestId(name), tokens, deadline_s, 0.0)
    assert queue.first(0.0) == (2, 10)
    queue.remove(RequestId(2))
    assert queue.first(0.0) == (3, 120)
    assert queue.first(0.06) == (1, 300)
    assert queue.first(1.5) == (3, 120)
    queue.remove(RequestId(3))
    queue.remove(RequestId(1))
    assert queue.first(1.5) == (0, 100)


class Late:
    """The true length, `seconds` after the arrival; at once for all but the last request."""

    foresees: ClassVar[bool] = False

    def __init__(self, outputs: list[int], seconds: float) -> None:
        self._outputs, self._seconds = outputs, seconds

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length, and when it is known."""
        is_last = request.id == len(self._outputs) - 1
        return LengthPrediction((self._outputs[request.id],)), self._seconds * is_last


@pytest.mark.parametrize(
    ("latency_s", "promised"),
    [
        (0.0, [(0.5, 24)]),
        (0.9, [(0.5, 10), (1.0, 24)]),
        (1.9, [(0.5, 10), (2.0, 24)]),
        (2.1, [(0.5, 10), (2.0, 15), (2.25, 24)]),
        (30.0, [(0.5, 10), (2.0, 15), (3.25, 20), (4.5, 25)]),
    ],
)
def test_kv_of_a_generation_through_its_life(
    latency_s: float, promised: list[tuple[float, int]]
) -> None:
    """Prompt of 4 tokens, answer of 20. With its prediction it is promised 4 + 20 when placed.

    Without, it is promised the mean answer so far, of the other request: 4 + 6. When its prediction
    comes, during an iteration, it is promised 24. Without one its context has 11 tokens after
    0.5 + 6 x 0.25 s and gets 4 more, then again.
    """
    seen: list[tuple[float, int]] = []

    class Watched(EcoServe):
        def schedule(self, view: GroupView) -> Decision:
            decision = super().schedule(view)
            if (promise := decision.reserve.get(RequestId(1))) and promise.tokens != 4:
                seen.append((view.now_s - FIRST_ENDS_S, promise.tokens))
            return decision

    outputs = [6, 20]
    load = workload([4, 4], outputs, [0.0, FIRST_ENDS_S], 1, max_context_tokens=80)
    costs = FlatCosts(blocks=100, block=1, load=0.0)
    serve(load, policy("d", of=Watched), costs=costs, predictor=Late(outputs, latency_s))
    assert seen == promised


def test_deadlines_come_from_the_prediction() -> None:
    assert BY_LENGTH.deadline_s(3.0, 100) == pytest.approx(3.0 + 2 * (0.05 + 4.0))


def test_length_groups_are_counted() -> None:
    eco = policy("sd")
    run(eco, 200, [5, 5, 5, 5, 9])
    counts = eco.counts()
    assert (counts["groups"], counts["groups_of_4"], counts["groups_of_12"]) == (2, 1, 0)
    assert (counts["placed"], counts["requests_in_groups_of_2"]) == (5, 4)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"padding": -2.0}, r"padding is -2.0, it must be at least 0"),
        ({"buffer_share": 1.5}, r"buffer_share is 1.5, it must be from 0 to 1"),
        ({"reserved_share": -0.1}, r"reserved_share is -0.1"),
        ({"halves": 3}, r"halves is 3"),
        ({"fill": "any"}, r"fill is any"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        policy("full", **settings)


@pytest.mark.parametrize(
    ("predicted", "sentence"),
    [
        (0, "a predicted length is 0 tokens, it must be at least 1"),
        (77, "r0 is predicted 77 tokens after a prompt of 4, beyond its context of 80"),
    ],
)
def test_impossible_predictions_are_refused(predicted: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(policy("full"), 100, [5], [predicted])


def test_kv_below_one_allocation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"r0 needs 24 blocks of KV for 4 prompt and 20 predicted"):
        run(policy("full", padding=1.0), 20, [16], [10])


class Wrong:
    """Predictions of a known length with noise, a little late for every third request."""

    foresees: ClassVar[bool] = False

    def __init__(self, load: Workload) -> None:
        noise = np.random.default_rng(1).lognormal(0.0, 0.3, len(load))
        self._tokens = np.clip(load.output_tokens * noise, 1, 250).astype(int).tolist()

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length, and when it is known."""
        return LengthPrediction((self._tokens[request.id],)), 0.004 * (request.id % 3 == 0)


def _load() -> Workload:
    rng = np.random.default_rng(3)
    outputs = np.rint(np.clip(rng.lognormal(3.5, 1.0, 120), 1, 250)).astype(int)
    arrivals = np.cumsum(rng.exponential(0.02, 120))
    return workload(
        rng.integers(1, 60, 120).tolist(),
        outputs.tolist(),
        arrivals.tolist(),
        1,
        max_context_tokens=320,
    )


def _eco(slack_ranges_s: list[float], fill: str) -> EcoServe:
    return policy(
        "full",
        ranking=replace(BY_LENGTH, slack_ranges_s=slack_ranges_s),
        fill=fill,
        smallest_tokens=8,
        reserved_share=0.3,
        waiting_share=0.3,
        target_tokens=256,
    )


def _serve(engine: Engine, eco: EcoServe) -> tuple[list[IterationStep], pd.DataFrame]:
    load, seen, recorder = _load(), watched(eco), Recorder()
    placement = Everywhere(*((str(s.id), (gpu,)) for gpu, s in enumerate(load.services)))
    engine.run(load, System("test", seen, RoundRobin(), placement, predictor=Wrong(load)), recorder)
    return seen.steps, recorder.requests


def _about() -> dict[str, Any]:
    return {
        "cluster": cluster(1),
        "costs": LinearCosts(blocks=60, load=0.0),
        "max_num_seqs": 24,
        "max_num_batched_tokens": 640,
    }


CHOICES = [([], "order"), ([0.2, 0.5, 2.0], "order"), ([0.2, 0.5, 2.0], "best")]


@pytest.mark.parametrize(("slack_ranges_s", "fill"), CHOICES)
def test_steady_runs_change_nothing(slack_ranges_s: list[float], fill: str) -> None:
    frames = []
    for fast_forward in (True, False):
        eco = _eco(slack_ranges_s, fill)
        load, recorder = _load(), Recorder()
        system = System("test", eco, RoundRobin(), Everywhere(("m", (0,))), predictor=Wrong(load))
        Simulator(**_about(), fast_forward=fast_forward).run(load, system, recorder)
        frames.append((recorder.requests, dict(eco.counts())))
    pd.testing.assert_frame_equal(frames[0][0], frames[1][0], rtol=1e-9)
    assert frames[0][1] == frames[1][1]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(("slack_ranges_s", "fill"), CHOICES)
def test_simulator_and_vllm_lend_and_recall_alike(slack_ranges_s: list[float], fill: str) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    from harness.engines.vllm.dry import VllmDry

    in_simulator, on_vllm = _eco(slack_ranges_s, fill), _eco(slack_ranges_s, fill)
    ours, frame = _serve(Simulator(**_about(), fast_forward=False), in_simulator)
    theirs, counted = _serve(VllmDry(**_about()), on_vllm)
    assert_same(ours, theirs)
    pd.testing.assert_frame_equal(frame, counted, rtol=1e-9)
    assert in_simulator.counts() == on_vllm.counts()
    counts = on_vllm.counts()
    assert counts["loans"] > 0
    if fill == "order":
        assert counts["recalled"] > 0
