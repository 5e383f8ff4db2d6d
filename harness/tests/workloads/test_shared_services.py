"""Services by K-means, their popularity, drift and bursts: moments, determinism, refusals."""

from typing import Any

import numpy as np
import pytest

from harness.workloads.lengths import Lognormal, Paired
from harness.workloads.service_arrivals import ServiceArrivals, rank_shares
from harness.workloads.shared_services import SharedServices

PAIRED: dict[str, Any] = {"part": "all", "outputs": None, "longest_output_tokens": None}
ABOUT: dict[str, Any] = {
    "models": {"Llama-2-7b-hf": 4, "opt-6.7b": 4},
    "lengths": [Paired(table="sharegpt_turns", **PAIRED), Paired(table="longbench", **PAIRED)],
    "points": 2000,
    "max_prompt_tokens": 3072,
    "max_output_tokens": 1000,
    "consecutive": 1,
    "length_error": 0.0,
}
ARRIVALS: dict[str, Any] = {
    "popularity": "azure_functions_2019_popularity",
    "rate_per_s": 20.0,
    "duration_s": 300.0,
    "history_s": 120.0,
    "gap_cv": 1.0,
    "drift": 0.0,
    "drift_minutes": 8.0,
}
SAME = Lognormal(
    prompt_median_tokens=9.0,
    prompt_sigma=0.0,
    output_median_tokens=9.0,
    output_sigma=0.0,
    max_prompt_tokens=9,
)


def made(**changes: Any) -> SharedServices:
    arrivals = {name: changes.pop(name, value) for name, value in ARRIVALS.items()}
    return SharedServices(**ABOUT | changes, arrivals=ServiceArrivals(**arrivals))


def test_every_service_has_requests_of_its_own_kind() -> None:
    load = made().build(0)
    assert (
        sorted(s.id.split("~")[0] for s in load.services)
        == ["Llama-2-7b-hf"] * 4 + ["opt-6.7b"] * 4
    )
    by_service = [np.log(load.output_tokens[load.service == i]) for i in range(8)]
    within = np.mean([values.var() for values in by_service])
    assert within < 0.4 * np.log(load.output_tokens).var()


def test_the_rate_is_that_of_the_run() -> None:
    counts = [len(made().build(seed)) for seed in range(20)]
    assert abs(np.mean(counts) - 6000) < 4 * np.sqrt(6000 / 20)


def test_seeds_decide_and_the_history_has_the_same_services() -> None:
    recipe = made()
    one, again, other, past = recipe.build(0), recipe.build(0), recipe.build(1), recipe.history(0)
    assert (one.output_tokens == again.output_tokens).all()
    assert one.services == past.services
    assert len(one) != len(other)
    assert past.arrival_s[-1] < 120.0


def test_consecutive_requests_ask_the_service_of_the_first() -> None:
    plain, skewed = made().build(0).service, made(consecutive=16).build(0).service
    assert (skewed == np.repeat(plain[::16], 16)[: len(plain)]).all()


def test_an_error_of_lengths_is_in_the_run_alone() -> None:
    recipe = made(length_error=4.0)
    assert (recipe.history(0).output_tokens == made().history(0).output_tokens).all()
    assert recipe.build(0).output_tokens.std() > 1.2 * made().build(0).output_tokens.std()


def arrivals(**changes: Any) -> ServiceArrivals:
    return ServiceArrivals(**ARRIVALS | changes)


def test_functions_have_the_published_shares_of_calls() -> None:
    """Shahrad et al., section 3.3: few have nearly all calls, over 8 orders of magnitude.

    The published curve of the released functions: the busiest has 14% of all calls, the busiest
    0.1% have 70 to 71%, 1% 93%, and 10% above 99%. 18.6% of applications have 99.6%; functions,
    of which one application has several, are more uneven.
    """
    shares = rank_shares("azure_functions_2019_popularity")
    first = shares.cumsum()
    assert len(shares) == 74347
    assert first[-1] == pytest.approx(1.0)
    assert first[0] == pytest.approx(0.137)
    assert 0.69 < first[73] < 0.72
    assert 0.92 < first[742] < 0.94
    assert 0.99 < first[7433] < 0.996 < first[int(0.186 * 74347)]
    assert (shares > 0.0).all()


def test_services_have_the_functions_that_are_dealt_out_to_them() -> None:
    """Of 16 services one has the busiest function, 2.2 times the mean by itself; none is idle."""
    shares = np.array([arrivals().shares(16, seed) for seed in range(20)])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares.max(axis=1) > 0.137).all()
    assert 2.5 < 16 * shares.max(axis=1).mean() < 3.5
    assert 0.2 < 16 * shares.min(axis=1).mean() < 0.6


def test_popularities_without_a_table_by_hand() -> None:
    """Three services: alike, or as 1 to 1/2 to 1/3, which add up to 11/6."""
    assert arrivals(popularity="even").shares(3, 0).tolist() == [1 / 3] * 3
    zipf = sorted(arrivals(popularity="zipf").shares(3, 0))
    assert zipf == pytest.approx([2 / 11, 3 / 11, 6 / 11])


def test_gaps_have_the_wanted_variation() -> None:
    """Of one service at a steady rate."""
    for gap_cv in (0.5, 1.0, 4.0):
        of_one = arrivals(popularity="even", gap_cv=gap_cv, rate_per_s=200.0)
        gaps_s = np.diff(of_one.draw(1, 0, is_past=False)[0])
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(gap_cv, rel=0.05)


def test_rates_drift_by_the_wanted_sigma_and_decorrelate() -> None:
    """Logarithms of rates: the sigma, and a correlation of exp(-1) after `drift_minutes`."""
    load = arrivals(popularity="even", drift=0.5, drift_minutes=4.0, duration_s=60_000.0)
    log = np.log(load._rates(20, 0)[0])
    assert log.std() == pytest.approx(0.5, rel=0.05)
    after = np.corrcoef(log[:, :-4].ravel(), log[:, 4:].ravel())[0, 1]
    assert after == pytest.approx(np.exp(-1.0), abs=0.05)


def test_a_squeezed_run_has_the_same_requests() -> None:
    """A thousandth of the time at a thousand times the rate: a backlog of the same requests."""
    plain = made().build(0)
    squeezed = made(rate_per_s=20_000.0, duration_s=0.3, history_s=0.12).build(0)
    assert (plain.service == squeezed.service).all()
    assert (plain.output_tokens == squeezed.output_tokens).all()
    np.testing.assert_allclose(plain.arrival_s, 1000 * squeezed.arrival_s, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": {"opt-6.7b": 0}}, "1 to 64 in all"),
        ({"lengths": [SAME]}, "1 different pairs of lengths for 8 services"),
        ({"rate_per_s": 1e-6}, "rate_per_s=1e-06 gives no request in 300 s of the run, seed 0"),
        ({"history_s": 0.0}, "history_s is 0.0, it must be positive"),
        ({"gap_cv": 0.0}, "gap_cv is 0.0, it must be positive"),
        ({"drift": -1.0}, "drift is -1.0, it must be from 0 to 10"),
        ({"max_output_tokens": 4000}, "opt-6.7b has a context of 2048"),
        ({"popularity": "azure_functions_2019"}, "=azure_functions_2019 is not even, zipf or a"),
        ({"popularity": "zip"}, "popularity=zip is not even, zipf or a table"),
    ],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**changes).build(0)
