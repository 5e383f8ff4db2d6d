"""Windows and states count at the contexts of the requests that a run serves."""

import json
from pathlib import Path

import pytest

from harness.interface.entities import ServiceId
from harness.runs.cells import Cell, compute
from harness.tests.support.cases import CASES
from harness.tests.support.configured import first_cell_of


def _cell(tmp_path: Path, model: str, rows: list[tuple[int, int]], *words: str) -> Cell:
    """A run of requests of prompt and output tokens that come at once, on H100s."""
    path = tmp_path / "trace.jsonl"
    lines = [
        json.dumps({"arrival_s": 0.0, "prompt_tokens": prompt, "output_tokens": output})
        for prompt, output in rows
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return first_cell_of(
        "workload=trace",
        f"workload.file={path}",
        f"workload.model={CASES / 'models' / model}",
        "hardware=h100_80g_8",
        "hardware.roofline=true",
        "tracking=none",
        *words,
    )


def _service(cell: Cell) -> ServiceId:
    (model,) = cell.workload_factory.models
    return ServiceId(model)


def test_windows_count_at_the_context_of_the_answers(tmp_path: Path) -> None:
    """10 layers of Gemma keep 30,100 tokens, 52 keep 1,024, of 16,384 B each in all heads."""
    cell = _cell(tmp_path, "gemma-3-27b.json", [(30_000, 200)] * 4)
    service = _service(cell)
    assert cell.costs.window_at_tokens == 30_100
    own = cell.costs.kv_bytes([service], 1) // cell.costs.kv_blocks(service, 1)
    assert own // 16 == pytest.approx(8192 * (10 + 52 * 1024 / 30_100), rel=1e-4)
    assert "as in requests of 30,100 tokens" in cell.costs.label(service, 1)
    given = _cell(tmp_path, "gemma-3-27b.json", [(30_000, 200)], "hardware.window_at_tokens=4096")
    assert given.costs.kv_blocks(service, 1) < 0.6 * cell.costs.kv_blocks(service, 1)


def test_a_model_of_full_attention_has_no_such_context(tmp_path: Path) -> None:
    short = _cell(tmp_path, "qwen3-8b.json", [(100, 20)])
    long = _cell(tmp_path, "qwen3-8b.json", [(30_000, 20)])
    service = _service(long)
    assert short.costs.kv_blocks(service, 1) == long.costs.kv_blocks(service, 1)
    assert short.costs.state_requests == 0


def test_states_limit_what_runs_at_once(tmp_path: Path) -> None:
    """Granite on an H100: 9 pages of 8.65 MB of states and one of KV each, in 9.5 GB."""
    cell = _cell(tmp_path, "granite-4.0-h-small.json", [(100, 20)] * 150)
    running = cell.costs.state_requests
    assert 100 < running < 116
    requests = compute(cell).tables["requests"]
    started_s, finished_s = requests["started_s"], requests["finished_s"]
    at_once = [((started_s <= at) & (finished_s > at)).sum() for at in started_s.unique()]
    assert max(at_once) == running
    few = _cell(tmp_path, "granite-4.0-h-small.json", [(100, 20)], "engine.max_num_seqs=8")
    assert few.costs.state_requests == 8
    service = _service(few)
    assert few.costs.kv_blocks(service, 1) > 5 * cell.costs.kv_blocks(service, 1)
