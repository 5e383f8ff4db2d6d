"""Loads on which tools and schedulers have given wrong answers: the right ones."""

import json
from pathlib import Path

import pytest

from harness.runs.cells import Run, compute
from harness.runs.figures import figures_of
from harness.tests.support.cases import CASES, listed
from harness.tests.support.configured import first_cell_of

BLOCK_BYTES = 16 * 32_768
"""KV of a block of Llama-3.2-1B."""


def _served(file: str | Path, model: str, *words: str) -> Run:
    """One run of a load of the cases on an H100."""
    path = CASES / "sched" / file if isinstance(file, str) else file
    return compute(
        first_cell_of(
            "workload=trace",
            f"workload.file={path}",
            f"workload.model={CASES / 'models' / model}",
            "hardware=h100_80g_8",
            "hardware.engine=vllm-0.3-eager",
            "tracking=none",
            *words,
        )
    )


def test_every_load_is_tried() -> None:
    tried = {"grows_past_kv", "kv_thrash_64", "larger_than_kv", "long_prompt_among_decodes"}
    assert {name.removesuffix(".jsonl") for name in listed("sched")} == tried | {
        "priority_inversion"
    }


def test_a_long_prompt_stalls_decodes_for_as_long_as_its_chunks() -> None:
    """30,000 tokens at once or in chunks: mean and P99 of TPOT hardly differ, the longest gap does.

    A chunk of 2,048 tokens at the end of the prompt reads 30,000 tokens of KV on top of the 42 ms
    of the experts.
    """
    model, key = "qwen3-30b-a3b.json", "policy.rule.max_num_batched_tokens"
    cut = figures_of(_served("long_prompt_among_decodes.jsonl", model, f"{key}=2048"))
    whole = figures_of(_served("long_prompt_among_decodes.jsonl", model, f"{key}=65536"))
    assert cut["tpot_s_mean"] == pytest.approx(whole["tpot_s_mean"], rel=0.02)
    assert cut["itl_s_max"] == pytest.approx(0.124, rel=0.01)
    assert whole["itl_s_max"] == pytest.approx(0.952, rel=0.01)


def test_an_urgent_request_waits_unless_it_displaces(tmp_path: Path) -> None:
    """One slot, three answers of 11.6 s before it, the first of which runs when it comes at 1 s."""
    rows = (CASES / "sched" / "priority_inversion.jsonl").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "priorities.jsonl"
    for number, line in enumerate(rows):
        row = json.loads(line)
        rows[number] = json.dumps(row | {"priority": int(row.pop("tenant")[1:])})
    path.write_text("\n".join(rows), encoding="utf-8")
    slots = "policy.rule.max_num_seqs=1"
    waits = {}
    for policy in ("vllm", "priority"):
        requests = _served(path, "llama-3.2-1b.json", f"policy={policy}", slots).tables["requests"]
        waits[policy] = (requests["first_token_s"] - requests["arrival_s"]).iloc[-1]
    assert waits["priority"] == pytest.approx(10.6, rel=0.02)
    assert waits["vllm"] == pytest.approx(10.6 + 2 * 11.6, rel=0.02)


@pytest.mark.parametrize(("blocks", "tokens_per_s"), [(1_250, 2_500.0), (94, 208.0)])
def test_short_kv_slows_and_ends(blocks: int, tokens_per_s: float) -> None:
    """64 answers of 1,000 tokens: with KV for 13 of them, and for one."""
    kv = f"hardware.kv_bytes={blocks * BLOCK_BYTES}"
    summary = figures_of(_served("kv_thrash_64.jsonl", "llama-3.2-1b.json", kv))
    assert summary["unfinished"] == 0
    assert summary["output_tokens_per_s"] == pytest.approx(tokens_per_s, rel=0.02)


@pytest.mark.parametrize("name", ["larger_than_kv.jsonl", "grows_past_kv.jsonl"])
def test_a_request_beyond_kv_is_named_and_left_out(name: str) -> None:
    kv = f"hardware.kv_bytes={125 * BLOCK_BYTES}"
    with pytest.raises(
        ValueError, match=r"row 1: .* take 1\d\d blocks of 16 tokens, there are 125"
    ):
        _served(name, "llama-3.2-1b.json", kv)
    left = _served(name, "llama-3.2-1b.json", kv, "workload.too_long=drop")
    assert len(left.tables["requests"]) == 5
    assert "1 of 6 requests are too long and left out, rows 1" in str(left.provenance["notes"])


def test_priorities_that_are_missing_are_said() -> None:
    run = _served("priority_inversion.jsonl", "llama-3.2-1b.json", "policy=priority")
    assert "requests have none: all are alike to it" in str(run.provenance["notes"])
