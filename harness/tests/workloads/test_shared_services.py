"""Services by K-means, arrivals function by function: moments, determinism, refusals."""

from typing import Any

import numpy as np
import pytest

from harness.workloads.lengths import Lognormal, Paired
from harness.workloads.shared_services import FunctionArrivals, SharedServices

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
    "table": "azure_functions_2019_minutes",
    "rate_per_s": 20.0,
    "duration_s": 300.0,
    "history_s": 120.0,
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
    return SharedServices(**ABOUT | changes, arrivals=FunctionArrivals(**arrivals))


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": {"opt-6.7b": 0}}, "1 to 64 in all"),
        ({"lengths": [SAME]}, "1 different pairs of lengths for 8 services"),
        ({"rate_per_s": 1e-6}, "rate_per_s=1e-06 gives no request in 300 s of the run, seed 0"),
        ({"duration_s": 3600.0}, "take 62 minutes, table .* has 60"),
        ({"models": {"opt-6.7b": 40}}, "40 services, table .* 32 streams"),
        ({"max_output_tokens": 4000}, "opt-6.7b has a context of 2048"),
        ({"table": "azure_functions_2019"}, "has no stream_counts"),
    ],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**changes).build(0)
