"""vLLM by its own scheduler, asynchronous or not, as an engine beside ours.

What our scheduler costs, and what it costs that it does not schedule a step ahead, is seen on the
same requests. Answers have the workload's lengths; the policy of a system is not asked.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.engines.recorder import Recorder, record
from harness.engines.state import RequestArrays, new_arrays
from harness.engines.token_gaps import note_batch
from harness.engines.vllm.client import Client
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.group import VllmGroup, new_engines
from harness.engines.vllm.processor import engine_name
from harness.engines.vllm.prompts import Prompts
from harness.engines.vllm.run import POLL_S
from harness.interface.entities import GpuId, Group, GroupId
from harness.interface.policies import System
from harness.tools.fidelity.real_engine import limits_of
from harness.workloads.workload import Workload

from vllm import SamplingParams  # isort: skip
from vllm.sampling_params import RequestOutputKind  # isort: skip


GROUP = GroupId("stock")


@dataclass(frozen=True, slots=True, kw_only=True)
class StockVllm(Vllm):
    """vLLM as it comes, for requests of one service that wait for no others."""

    asynchronous: bool

    @classmethod
    def like(cls, engine: Vllm, *, asynchronous: bool) -> "StockVllm":
        """With the settings of another engine, and what that has loaded."""
        own = {name: getattr(engine, name) for name in Vllm.__dataclass_fields__}
        return cls(**own, asynchronous=asynchronous)

    @property
    def about(self) -> str:
        """Its seconds are measured."""
        return f"measured on {engine_name(self.dtype)}, its own scheduler"

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload in real time, one engine on one GPU. See `Engine.run`."""
        if workload.apps is not None or workload.answers_release or len(workload.services) > 1:
            raise ValueError(
                "vLLM's own scheduler is driven for one service whose requests wait for no answers"
            )
        group = self._group(workload)
        arrays, client = _serve(group.engines[0], workload, Prompts(workload, self))
        if self.keep_loaded:
            self.loaded[group.settings] = group
        else:
            group.stop()
        record(workload, arrays, recorder)
        recorder.requests["lag_s"] = client.lag_s
        recorder.engines = {str(GROUP): {workload.services[0].id: self._resolved(group, workload)}}

    def _resolved(self, group: VllmGroup, workload: Workload) -> dict[str, int]:
        """Limits and KV of the engine, as `VllmGroup.resolved` names them."""
        config = group.engines[0].vllm_config
        return limits_of(config.scheduler_config) | {
            # One block stands for "none" and is never given out.
            "kv_blocks": int(config.cache_config.num_gpu_blocks) - 1,
            "block_tokens": int(config.cache_config.block_size),
            "kv_bytes_per_token": workload.services[0].kv_bytes_per_token,
        }

    def _group(self, workload: Workload) -> VllmGroup:
        """An engine in this process, loaded already or not.

        Raises ValueError where vLLM does not schedule ahead, as on a CPU.
        """
        (service,) = workload.services
        place = Group(GROUP, frozenset({service.id}), (GpuId(0),))
        (ours,) = self.settings([service], place)
        settings = (replace(ours, scheduler=None, asynchronous=self.asynchronous),)
        if (loaded := self.loaded.pop(settings, None)) is not None:
            return loaded
        group = VllmGroup(new_engines(settings), self.keep_answers, settings)
        if group.engines[0].vllm_config.scheduler_config.async_scheduling != self.asynchronous:
            group.stop()
            raise ValueError("vLLM does not schedule asynchronously on this machine")
        return group


def _serve(engine: Any, workload: Workload, prompts: Prompts) -> tuple[RequestArrays, Client]:
    """Take requests in when they have come, step the engine, until all are answered."""
    tokens = [prompts.prompt(request) for request in range(len(workload))]
    of_policy = np.zeros(len(workload), np.int64)
    lengths = workload.prompt_tokens, workload.output_tokens
    arrays = new_arrays(*lengths, of_policy, workload.arrival_s, workload.service)
    began_s = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began_s

    def take_in(requests: list[int]) -> None:
        for request in requests:
            asked = SamplingParams(
                max_tokens=int(workload.output_tokens[request]),
                ignore_eos=True,
                detokenize=False,
                temperature=0.0,
                output_kind=RequestOutputKind.DELTA,
            )
            engine.add_request(str(request), {"prompt_token_ids": tokens[request]}, asked)

    client = Client(workload, np.arange(len(workload)), clock)
    client.start()
    while not client.is_through or engine.has_unfinished_requests():
        for requests in client.arrived():
            take_in(requests)
        if engine.has_unfinished_requests():
            _note(arrays, engine.step(), clock())
        else:
            take_in(client.wait(POLL_S))
        client.was_busy()
    return arrays, client


def _note(arrays: RequestArrays, outputs: list[Any], now_s: float) -> None:
    """Write down the tokens of a step; vLLM may add to the name of a request."""
    making = []
    for output in outputs:
        request = int(output.request_id.partition("-")[0])
        if made := sum(len(each.token_ids) for each in output.outputs):
            making.append(request)
            if arrays.generated[request] == 0:
                arrays.first_token_s[request] = now_s
            arrays.generated[request] += made
        if output.finished:
            arrays.finished_s[request] = now_s
    note_batch(arrays.rows, arrays.gaps, np.array(making, np.int64), now_s, 0.0, now_s, 1)
