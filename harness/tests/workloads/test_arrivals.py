import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.tests.support.data import DATA, needs_data
from harness.tools.fitting.arrivals import arrival_files, dispersion, weibull_shape
from harness.tools.fitting.stored import as_text
from harness.workloads.arrivals import (
    TABLES,
    Arrivals,
    Clients,
    Functions,
    Gamma,
    WholeSeconds,
    Windows,
    arrival_table,
    relative_gaps,
)

Floats = NDArray[np.float64]

FUNCTIONS = "azure_functions_2019"
LLM = ("azure_llm_2023_conv", "azure_llm_2023_code")
SERVICES = {"m-small": 2.9, "m-mid": 15.9, "m-large": 3.1, "deepseek-r1": 2.3}
"""CV of gaps, weighted by rate, that the table of the data states."""


def processes(rate_per_s: float) -> dict[str, Arrivals]:
    return {
        "gamma": Gamma(rate_per_s=rate_per_s, burstiness=2.0, sorted_gaps=False),
        "sorted": Gamma(rate_per_s=rate_per_s, burstiness=2.0, sorted_gaps=True),
        "whole": WholeSeconds(rate_per_s=rate_per_s),
        "functions": Functions(table=FUNCTIONS, rate_per_s=rate_per_s, functions=50),
        **{table: Windows(table=table, rate_per_s=rate_per_s) for table in (*LLM, FUNCTIONS)},
        **{name: Clients(table=f"servegen_{name}", rate_per_s=rate_per_s) for name in SERVICES},
    }


NAMES = tuple(processes(1.0))


def drawn(process: Arrivals, count: int, seed: int = 0) -> Floats:
    return process.draw(count, np.random.default_rng(seed))


def dispersion_of(arrival_s: Floats, window_s: float) -> float:
    """Index of dispersion over whole windows."""
    return dispersion(np.bincount((arrival_s // window_s).astype(int))[:-1].astype(np.float64))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 777])
def test_as_many_as_wanted_in_ascending_order_from_0(name: str, count: int) -> None:
    arrival_s = drawn(processes(3.0)[name], count)
    assert len(arrival_s) == count
    assert arrival_s[0] >= 0.0
    assert (np.diff(arrival_s) >= 0.0).all()
    assert np.isfinite(arrival_s).all()


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_arrivals_and_another_seed_others(name: str) -> None:
    process = processes(3.0)[name]
    np.testing.assert_array_equal(drawn(process, 50), drawn(process, 50))
    assert not np.array_equal(drawn(process, 50), drawn(process, 50, seed=1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rate_per_s", [0.5, 8.0])
def test_the_mean_rate_is_the_wanted_one(name: str, rate_per_s: float) -> None:
    """Over whole recordings; what is left is the noise of bursts, most for the burstiest."""
    count = int(3600 * 6 * rate_per_s)
    found = [count / drawn(processes(rate_per_s)[name], count, seed)[-1] for seed in range(3)]
    assert np.mean(found) == pytest.approx(rate_per_s, rel=0.2 if name == "m-mid" else 0.06)


@pytest.mark.parametrize("name", ["gamma", "sorted", *SERVICES])
def test_a_process_of_gaps_is_the_same_at_every_rate_but_for_its_clock(name: str) -> None:
    slow, fast = (drawn(processes(rate)[name], 500) for rate in (1.0, 4.0))
    np.testing.assert_allclose(slow, 4.0 * fast)


def test_sorted_gaps_are_the_same_gaps_in_ascending_order() -> None:
    plain, ordered = (drawn(processes(1.0)[name], 300) for name in ("gamma", "sorted"))
    gaps = np.diff(ordered)
    assert (np.diff(gaps) > -1e-9).all()
    same = np.sort(np.diff(plain, prepend=0.0))
    np.testing.assert_allclose(same, np.diff(ordered, prepend=0.0), atol=1e-9)


def test_requests_of_a_second_share_its_time() -> None:
    arrival_s = drawn(processes(8.0)["whole"], 8000)
    assert (arrival_s % 1.0 == 0.0).all()
    assert dispersion_of(arrival_s, 1.0) == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize(("table", "stated"), [*zip(LLM, (4.0, 71.3), strict=True)])
def test_windows_vary_as_those_of_the_trace(table: str, stated: float) -> None:
    """At the measured rate; 10 s windows are matched, so only the noise of a few hours is left."""
    measured = arrival_table(table, "measured")["measured"]
    rate_per_s = measured["rate_per_s"]
    process = Windows(table=table, rate_per_s=rate_per_s)
    arrival_s = drawn(process, int(6 * 3440 * rate_per_s))
    gaps = np.diff(arrival_s)
    assert dispersion_of(arrival_s, 10.0) == pytest.approx(stated, rel=0.12)
    assert gaps.std() / gaps.mean() == pytest.approx(measured["cv_of_gaps"], rel=0.12)
    # Taking the noise of 10 s windows out also takes from what they have in common for minutes.
    long = measured["index_of_dispersion_60_s"]
    assert dispersion_of(arrival_s, 60.0) == pytest.approx(long, rel=0.3)


@pytest.mark.parametrize("kind", ["total", "all functions"])
def test_minutes_vary_as_those_of_the_functions(kind: str) -> None:
    """The data's own statement, 0.19, counts timers too; functions that users trigger have 0.21."""
    measured = arrival_table(FUNCTIONS, "measured")["measured"]
    rate_per_s = measured["rate_per_s"]
    process: Arrivals = (
        Windows(table=FUNCTIONS, rate_per_s=rate_per_s)
        if kind == "total"
        else Functions(table=FUNCTIONS, rate_per_s=rate_per_s, functions=586)
    )
    found = [drawn(process, int(4 * 3600 * rate_per_s), seed) for seed in range(3)]
    counts = np.concatenate([np.bincount((one // 60).astype(int))[:-1] for one in found])
    assert counts.std() / counts.mean() == pytest.approx(measured["cv_of_minutes"], rel=0.15)
    assert measured["cv_of_minutes"] == pytest.approx(0.19, abs=0.03)


@pytest.mark.parametrize(("name", "stated"), [*SERVICES.items()])
def test_clients_have_the_burstiness_of_the_service(name: str, stated: float) -> None:
    table = arrival_table(f"servegen_{name}", "clients")
    assert table["measured"]["cv_weighted_by_rate"] == pytest.approx(stated, rel=0.02)
    share = np.array([client["share"] for client in table["clients"]])
    cv = np.array([client["cv"] for client in table["clients"]])
    assert share.sum() == pytest.approx(1.0, abs=1e-4)
    assert table["measured"]["load_kept"] >= 0.95
    # the clients left out carry a twentieth of the load
    assert (share * cv).sum() == pytest.approx(stated, rel=0.1)


@pytest.mark.parametrize("cv", [0.8, 3.0])
@pytest.mark.parametrize("family", ["gamma", "weibull"])
def test_gaps_of_a_client_have_its_mean_and_burstiness(family: str, cv: float) -> None:
    shape = 1.0 / cv**2 if family == "gamma" else weibull_shape(cv)
    rng = np.random.default_rng(0)
    gaps = relative_gaps(family, shape, 400_000, rng, met=False)
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert gaps.std() == pytest.approx(cv, rel=0.06)
    # a moment falls into a gap of the mean (1 + cv^2), as the inspection paradox has it
    met = relative_gaps(family, shape, 400_000, rng, met=True)
    assert met.mean() == pytest.approx(1.0 + cv**2, rel=0.05)


def test_a_bursty_service_does_not_begin_with_a_burst() -> None:
    """Were time 0 an arrival of each client, its first seconds would see several times the rate."""
    process = Clients(table="servegen_m-small", rate_per_s=1.0)
    early = [np.searchsorted(drawn(process, 400, seed), 20.0) for seed in range(60)]
    assert np.mean(early) == pytest.approx(20.0, rel=0.35)


def make(name: str, **change: Any) -> Arrivals:
    classes: dict[str, Any] = {"Gamma": Gamma, "Windows": Windows, "Functions": Functions}
    made: Arrivals = classes[name](**change)
    return made


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "Gamma",
            {"rate_per_s": 0.0, "burstiness": 1.0, "sorted_gaps": False},
            "workload.arrivals.rate_per_s is 0.0, it must be positive",
        ),
        (
            "Gamma",
            {"rate_per_s": 1.0, "burstiness": -2.0, "sorted_gaps": False},
            "workload.arrivals.burstiness is -2.0, it must be positive",
        ),
        ("Windows", {"table": "azure_llm_2032_conv", "rate_per_s": 1.0}, "azure_llm_2023_conv"),
        ("Windows", {"table": "servegen_m-mid", "rate_per_s": 1.0}, "has no relative_rate"),
        (
            "Functions",
            {"table": FUNCTIONS, "rate_per_s": 1.0, "functions": 0},
            "workload.arrivals.functions is 0",
        ),
    ],
)
def test_bad_settings_are_named(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(name, **change)


@needs_data
def test_tables_are_reproduced_byte_for_byte() -> None:
    made = {name: as_text(content) for name, content in arrival_files(DATA)}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in TABLES.iterdir()}


@pytest.mark.parametrize(
    ("name", "rate_per_s", "said"),
    [
        ("WholeSeconds", 1e-12, "rate_per_s is 1e-12, it must be from 1e-09 to 1e+09"),
        ("Functions", 1e-9, "rate_per_s is 1e-09, it must be from 0.000166667 to 1e+09"),
    ],
)
def test_rates_at_which_no_draw_would_end_are_refused(
    name: str, rate_per_s: float, said: str
) -> None:
    more: dict[str, Any] = {"table": FUNCTIONS, "functions": 5} if name == "Functions" else {}
    with pytest.raises(ValueError, match=re.escape(said)):
        {"WholeSeconds": WholeSeconds, "Functions": Functions}[name](rate_per_s=rate_per_s, **more)
