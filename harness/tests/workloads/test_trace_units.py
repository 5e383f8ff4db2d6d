"""Units of times and sizes of hash blocks: those that a file tells, or a sentence."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.config.paths import ROOT
from harness.tests.support.recorded_requests import trace
from harness.workloads.prefixes import hash_tokens
from harness.workloads.trace_formats import FORMATS

Write = Callable[[str, str], Path]
GAP_S, COUNT = 0.5, 20
SINCE_1970_S = 1_764_288_000


def _lines(unit_per_s: int, start_s: int = 0, **more: object) -> str:
    """20 requests of Mooncake's columns, two a second, in whole numbers of a unit."""
    times = [start_s * unit_per_s + int(row * GAP_S * unit_per_s) for row in range(COUNT)]
    rows = [{"timestamp": at, "input_length": 600, "output_length": 9, **more} for at in times]
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize("per_s", [1, 10**3, 10**6, 10**9])
def test_times_since_1970_tell_their_unit(per_s: int, written: Write) -> None:
    rows = _lines(per_s, SINCE_1970_S) if per_s > 1 else _lines(1000, 0)
    load = trace(written("a.jsonl", rows)).build(0)
    assert np.diff(load.arrival_s) == pytest.approx([GAP_S] * (COUNT - 1), abs=1e-5)
    assert load.arrival_s[0] == 0


@pytest.mark.parametrize(
    ("per_s", "said"),
    [
        (10, "read as ms is 20 arrivals in 0.095 s, 200/s; as s it is 0.2/s: .*={unit:s}'"),
        (10**6, "read as ms is 20 arrivals in 9,500 s, 0.002/s; as us it is 2/s: .*={unit:us}'"),
        (10**9, "as ns it is 2/s: say 'workload.columns={unit:ns}', or unit:ms for what was read"),
    ],
)
def test_an_implausible_unit_is_refused_and_may_be_said(
    per_s: int, said: str, written: Write
) -> None:
    file = written("a.jsonl", _lines(per_s))
    with pytest.raises(ValueError, match=said) as raised:
        trace(file)
    found = re.findall(r"'workload.columns=\{unit:(\w+)\}'", str(raised.value))
    assert trace(file, columns={"unit": found[0]}).load().requests == COUNT
    assert trace(file, columns={"unit": "ms"}).load().span_s == pytest.approx(9.5 * per_s / 1e3)


def test_digits_against_a_stated_unit_are_refused_in_full(written: Write) -> None:
    file = written("a.csv", "arrival_s,prompt_tokens,output_tokens\n1764288000123,5,5\n")
    with pytest.raises(ValueError, match="row 1: arrival_s 1764288000123 is since 1970 in ms"):
        trace(file)
    assert trace(file, columns={"unit": "ms"}).build(0).arrival_s.tolist() == [0.0]


def test_days_of_a_clock_are_not_since_1970(written: Write) -> None:
    """16 days of a clock in ms have the digits of seconds since 1970."""
    load = trace(written("a.jsonl", _lines(1000, 1_400_000))).build(0)
    assert load.arrival_s[:2].tolist() == [1_400_000.0, 1_400_000.5]
    assert any("workload.from_first=true counts from it" in note for note in load.notes)
    begun = trace(written("a.jsonl", _lines(1000, 1_400_000)), from_first=True).build(0)
    assert begun.arrival_s[:2].tolist() == [0.0, 0.5]


def test_a_unit_in_the_name_of_a_column_is_read(written: Write) -> None:
    """The words of the refusal read the file."""
    file = written("a.csv", "ts_us,in tokens,generated\n0,5,6\n1500000,7,8\n")
    with pytest.raises(ValueError, match="nearest format") as raised:
        trace(file)
    assert (
        '\'workload.columns={arrival_s:ts_us,prompt_tokens:"in tokens",output_tokens:generated,'
        "unit:us}'" in str(raised.value)
    )
    named = {"arrival_s": "ts_us", "prompt_tokens": "in tokens", "output_tokens": "generated"}
    assert trace(file, columns=named).build(0).arrival_s.tolist() == [0.0, 1.5]


@pytest.mark.parametrize("size", [16, 48, 64, 256, 512, 1024])
@pytest.mark.parametrize("is_full", [False, True])
def test_the_size_of_a_block_follows_from_prompts(size: int, is_full: bool) -> None:
    """Where the last block has a hash, and where only full ones have."""
    prompts = 1000 + 37 * np.arange(40)
    hashes = prompts // size if is_full else -(-prompts // size)
    assert hash_tokens(prompts, hashes, 512) == size


def test_blocks_that_disagree_are_refused_and_may_be_said(written: Write) -> None:
    rows = [
        {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": list(range(n))}
        for n in (38, 3)
    ]
    file = written("a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="row 1: hash_ids has 38 hashes for 600 tokens, and no si"):
        trace(file)
    assert trace(file, columns={"hash_tokens": 16}).build(0).prefix_tokens.tolist() == [0, 48]
    with pytest.raises(ValueError, match="row 1: hash_ids has 38 hashes for 600 tokens"):
        trace(file, columns={"hash_tokens": 32})
    with pytest.raises(ValueError, match=r"workload.columns.hash_tokens=0 is no number of tokens"):
        trace(file, columns={"hash_tokens": 0})


def test_every_format_is_listed() -> None:
    text = (ROOT / "scenarios" / "workload" / "trace.yaml").read_text(encoding="utf-8")
    known = {kind.name for kind in FORMATS} - {"own"}
    assert {name for name in known if name not in text} == set()
