"""A request takes 0.1 s and 0.02 s for every token of its answer, alone or in a batch."""

import numpy as np
import pytest

from harness.costs.model_facts import model_facts
from harness.engines.recorder import Recorder
from harness.interface.entities import Service, ServiceId
from harness.tests.support.configured import first_cell_of
from harness.workloads.workload import Workload

MODEL, KV_BLOCKS = "vicuna-13b-v1.5", 10**6
CHOICES = ("hardware=linear_latency", "workload=chats", "system=fixed", "policy=vllm_0_3")


def finished_s(outputs: list[int], arrivals_s: list[float]) -> list[float]:
    """When requests with prompts of very different lengths are done."""
    count = len(outputs)
    facts = model_facts(MODEL)
    load = Workload(
        services=(Service(ServiceId(MODEL), facts.kv_bytes_per_token, facts.max_context_tokens),),
        service=np.zeros(count, np.int64),
        arrival_s=np.array(arrivals_s),
        prompt_tokens=np.array([900, 10, 700, 500][:count], np.int64),
        output_tokens=np.array(outputs, np.int64),
        max_output_tokens=np.array(outputs, np.int64),
        app=np.arange(count, dtype=np.int64),
        deadline_s=np.full(count, np.nan),
    )
    cell = first_cell_of(*CHOICES, "policy.rule.max_padding_tokens=4096")
    recorder = Recorder()
    cell.engine.run(load, cell.system, recorder)
    found: list[float] = recorder.requests["finished_s"].tolist()
    return found


@pytest.mark.parametrize("tokens", [1, 2, 137, 512])
def test_a_request_alone(tokens: int) -> None:
    assert finished_s([tokens], [0.0]) == pytest.approx([0.1 + 0.02 * tokens], abs=1e-9)


def test_a_batch_takes_as_long_as_its_longest() -> None:
    """And the others are as fast in it as they are alone."""
    found = finished_s([40, 10, 300, 41], [0.0] * 4)
    assert max(found) == pytest.approx(0.1 + 0.02 * 300, abs=1e-9)
    assert found == pytest.approx([0.9, 0.3, 6.1, 0.92], abs=1e-9)


def test_loads_take_no_time_and_kv_never_runs_out() -> None:
    costs = first_cell_of(*CHOICES).costs
    assert costs.load_s(ServiceId(MODEL), 1) == 0.0
    assert costs.kv_blocks(ServiceId(MODEL), 1) == KV_BLOCKS
    # 256 requests at the model's whole context
    assert 256 * model_facts(MODEL).max_context_tokens < KV_BLOCKS * 16
    assert costs.label(MODEL, 1) == "assumed"
