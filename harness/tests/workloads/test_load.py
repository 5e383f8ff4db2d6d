"""Loads: a fraction of a measured capacity, whatever the process of arrivals."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness.tests.support.configured import composed
from harness.workloads import load
from harness.workloads.arrivals import Gamma
from harness.workloads.load import AtLoad, capacity_per_s

SETTING: dict[str, str | int | bool | None] = {"model": "m", "max_num_seqs": 4, "refills": None}
POISSON = partial(Gamma, burstiness=1.0, sorted_gaps=False)


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with a capacity of 2.5 requests per second in one setting."""
    path = tmp_path / "backlogs.json"
    row = '{"setting": {"model": "m", "max_num_seqs": 4, "refills": null}, "requests_per_s": 2.5}'
    path.write_text(f'{{"rows": [{row}]}}')
    monkeypatch.setattr(load, "CAPACITIES", tmp_path)


def test_the_rate_is_the_load_times_the_capacity() -> None:
    arrivals = AtLoad(load=0.8, process=POISSON, table="backlogs", setting=SETTING)
    assert arrivals.rate_per_s == pytest.approx(2.0)
    assert set(arrivals.files) == {str(load.CAPACITIES / "backlogs.json")}
    same = Gamma(rate_per_s=2.0, burstiness=1.0, sorted_gaps=False)
    drawn, again = (one.draw(50, np.random.default_rng(1)) for one in (arrivals, same))
    assert drawn == pytest.approx(again)


def test_a_capacity_that_was_not_measured_is_named_with_the_command() -> None:
    said = r"^the capacity of model m, max_num_seqs 5 was not measured: .*tools.benchmarks.capa"
    with pytest.raises(ValueError, match=said):
        capacity_per_s("backlogs", {**SETTING, "max_num_seqs": 5})
    with pytest.raises(ValueError, match=r"No table of capacities is called 'backlog'"):
        capacity_per_s("backlog", SETTING)
    with pytest.raises(ValueError, match=r"workload\.arrivals\.load is 0, it must be positive"):
        AtLoad(load=0, process=POISSON, table="backlogs", setting=SETTING)


def test_every_batching_mode_has_its_own_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """As configured: the same load is another rate in another mode, as measured."""
    monkeypatch.undo()
    words = "workload=chats workload/arrivals=at_load hardware=v100_16g_8 workload.model=opt-2.7b"
    rates = []
    for policy in ("fcfs_none", "fcfs_dynamic", "fcfs_continuous"):
        with composed(*words.split(), f"policy={policy}", "system=fixed") as composer:
            arrivals = composer.whole().workload["arrivals"]
            rates.append(capacity_per_s(arrivals["table"], arrivals["setting"]))
    assert rates[0] < rates[1] < rates[2] <= 4 * rates[0] * 1.05


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("policy=slai", r"max_num_seqs auto, max_num_batched_tokens 65536 was not measured"),
        ("policy=fcfs_continuous hardware.kv_bytes=12000000000", "kv_bytes 12000000000 was not"),
    ],
)
def test_any_policy_has_a_setting_and_less_kv_is_another(
    monkeypatch: pytest.MonkeyPatch, words: str, says: str
) -> None:
    monkeypatch.undo()
    common = "workload=chats workload/arrivals=at_load hardware=v100_16g_8 workload.model=opt-2.7b"
    with composed(*common.split(), *words.split(), "system=fixed") as composer:
        arrivals = composer.whole().workload["arrivals"]
    with pytest.raises(ValueError, match=says):
        capacity_per_s(arrivals["table"], arrivals["setting"])
