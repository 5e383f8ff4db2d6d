"""Known queues on the simulator agree with their closed forms, and would be caught if not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import dblquad, quad

from harness.engines.recorder import Recorder
from harness.tools.verify import queues as closed_forms
from harness.tools.verify.__main__ import QUICK, queues
from harness.tools.verify.estimates import run_means, verify
from harness.tools.verify.queues import (
    Discipline,
    Queue,
    erlang_c,
    pollaczek_khinchine_wait_s,
    shortest_remaining_response_s,
)
from harness.tools.verify.samples import Law, Sample, draw_s, draw_sample, second_moment_s2

MM1 = Queue(discipline=Discipline.FIRST_COME, law=Law.EXPONENTIAL, load=0.8)
SMALL = replace(QUICK, recursion_runs=60, engine_requests=200)


def _case(place: int, queue: Queue) -> object:
    name = f"{queue.name}-{queue.law.value}-{queue.load:g}"
    steps = queue.discipline is Discipline.SHORTEST_REMAINING
    return pytest.param(place, queue, id=name, marks=[pytest.mark.slow] if steps else [])


@pytest.mark.parametrize(("seed", "queue"), [_case(*item) for item in enumerate(queues())])
def test_a_queue_is_within_half_a_percent(seed: int, queue: Queue) -> None:
    """Little's law and conservation of work hold exactly, and so do waits where slots are few."""
    line = verify(queue, QUICK, seed)
    assert line["problems"] == []
    assert abs(line["difference"]) <= 0.005
    assert line["standard_error_s"] < 0.0025 * line["expected_s"]
    assert line["max_gap_s"] <= (1e-3 if queue.discipline is Discipline.SHARED else 1e-9)


def test_closed_forms_by_hand() -> None:
    assert pollaczek_khinchine_wait_s(0.5, second_moment_s2(Law.EXPONENTIAL)) == 1.0
    assert pollaczek_khinchine_wait_s(0.5, second_moment_s2(Law.DETERMINISTIC)) == 0.5
    assert erlang_c(1, 0.3) == pytest.approx(0.3)
    assert erlang_c(2, 0.5) == pytest.approx(1 / 3)
    # a = 2, k = 4: (2^4 / 4!) 2 / (1 + 2 + 2 + 4/3 + (2^4 / 4!) 2) = (4/3) / (23/3)
    assert erlang_c(4, 0.5) == pytest.approx(4 / 23)
    assert replace(MM1, max_num_seqs=2, load=0.5).expected_s == pytest.approx(4 / 3)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8, 0.9])
def test_shortest_remaining_by_another_quadrature(load: float) -> None:
    """The double integral as Schrage and Miller print it, by adaptive quadrature."""

    def idle(x: float) -> float:
        return float(1 - load * (1 - np.exp(-x) * (1 + x)))

    def wait_s(x: float) -> float:
        second = quad(lambda t: t * t * np.exp(-t), 0, x)[0]
        return float(load * (second + x * x * np.exp(-x)) / (2 * idle(x) ** 2) * np.exp(-x))

    residence_s = dblquad(lambda t, x: np.exp(-x) / idle(t), 0, 50, 0, lambda x: x)[0]
    expected_s = residence_s + quad(wait_s, 0, 50, limit=200)[0]
    assert shortest_remaining_response_s(load) == pytest.approx(expected_s, rel=1e-7)
    assert expected_s < replace(MM1, discipline=Discipline.SHARED, load=load).expected_s


@pytest.mark.parametrize("law", Law)
def test_laws_have_the_moments_they_claim(law: Law) -> None:
    service_s = draw_s(law, 1_000_000, np.random.default_rng(5))
    assert service_s.mean() == pytest.approx(1.0, rel=0.01)
    assert (service_s**2).mean() == pytest.approx(second_moment_s2(law), rel=0.05)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("max_num_seqs", [1, 4])
def test_control_variates_have_mean_zero(law: Law, max_num_seqs: int) -> None:
    """None is more than four and a half standard errors from it: 72 are looked at."""
    queue = Queue(discipline=Discipline.FIRST_COME, law=law, load=0.7, max_num_seqs=max_num_seqs)
    rng = np.random.default_rng(8)
    samples = [draw_sample(law, queue.rate_per_s, 10_000, rng) for _ in range(60)]
    controls = np.array([run_means(queue, s, *queue.recursion_s(s)) for s in samples])[:, 1:]
    error = controls.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(controls.mean(axis=0)) <= 4.5 * error).all()


def test_controls_do_not_hide_a_wrong_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control variates know nothing of it: a formula 1% off stays 1% off."""
    right = pollaczek_khinchine_wait_s
    monkeypatch.setattr(closed_forms, "pollaczek_khinchine_wait_s", lambda *a: 1.01 * right(*a))
    line = verify(MM1, SMALL, 1)
    assert not line["holds"]
    assert line["difference"] == pytest.approx(-0.01, abs=0.005)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda served: served["finished_s"].add(0.1),
        lambda served: served["finished_s"] + 0.02 * (served["finished_s"] - served["arrival_s"]),
    ],
)
def test_an_engine_that_is_late_is_caught(
    spoil: Callable[[pd.DataFrame], "pd.Series[float]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Response times a tenth of a second, or 2%, too long."""
    serve = Queue.serve

    def late(queue: Queue, sample: Sample) -> Recorder:
        recorder = serve(queue, sample)
        recorder.requests["finished_s"] = spoil(recorder.requests)
        return recorder

    monkeypatch.setattr(Queue, "serve", late)
    line = verify(MM1, SMALL, 1)
    assert not line["holds"]
    assert line["difference"] > 0.005
    assert any("over time" in problem for problem in line["problems"])
    assert any("off the recursion" in problem for problem in line["problems"])
