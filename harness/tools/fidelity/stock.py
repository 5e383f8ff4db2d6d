"""vLLM by its own scheduler, asynchronous or not, as an engine beside ours.

What our scheduler costs, and what it costs that it does not schedule a step ahead, is seen on the
same requests. Answers have the workload's lengths; the policy of a system is not asked.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.engines.frames import record
from harness.engines.recorder import Recorder
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
        settings = group.settings
        prompts = Prompts(workload, self)
        sent = _Sent(group.engines[0], workload, [prompts.prompt(r) for r in range(len(workload))])
        sent.serve()
        if self.keep_loaded:
            self.loaded[settings] = group
        else:
            group.stop()
        record(workload, sent.arrays, recorder)
        recorder.requests["lag_s"] = sent.client.lag_s
        recorder.engines = {str(GROUP): {workload.services[0].id: self._resolved(group, workload)}}

    def _resolved(self, group: VllmGroup, workload: Workload) -> dict[str, int]:
        """Limits and KV of the engine, as `VllmGroup.resolved` names them."""
        config = group.engines[0].vllm_config
        scheduled, cache = config.scheduler_config, config.cache_config
        return {
            "max_num_seqs": int(scheduled.max_num_seqs),
            "max_num_batched_tokens": int(scheduled.max_num_batched_tokens),
            # One block stands for "none" and is never given out.
            "kv_blocks": int(cache.num_gpu_blocks) - 1,
            "block_tokens": int(cache.block_size),
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


class _Sent:
    """The requests of a run, on the engine and timed."""

    def __init__(self, engine: Any, workload: Workload, prompts: list[list[int]]) -> None:
        self._engine, self._workload, self._prompts = engine, workload, prompts
        self._began_s = time.monotonic()
        self.client = Client(workload, np.arange(len(workload)), self._clock)
        self.arrays: RequestArrays = new_arrays(
            workload.prompt_tokens,
            workload.output_tokens,
            np.zeros(len(workload), np.int64),
            workload.arrival_s,
            workload.service,
        )

    def _clock(self) -> float:
        return time.monotonic() - self._began_s

    def serve(self) -> None:
        """Take requests in when they have come, step the engine, until all are answered."""
        self._began_s = time.monotonic()
        self.client.start()
        while not self.client.is_through or self._engine.has_unfinished_requests():
            for requests in self.client.arrived():
                self._take_in(requests)
            if self._engine.has_unfinished_requests():
                self._note(self._engine.step(), self._clock())
            else:
                self._take_in(self.client.wait(POLL_S))
            self.client.was_busy()

    def _take_in(self, requests: list[int]) -> None:
        for request in requests:
            self._engine.add_request(
                str(request),
                {"prompt_token_ids": self._prompts[request]},
                SamplingParams(
                    max_tokens=int(self._workload.output_tokens[request]),
                    ignore_eos=True,
                    detokenize=False,
                    temperature=0.0,
                    output_kind=RequestOutputKind.DELTA,
                ),
            )

    def _note(self, outputs: list[Any], now_s: float) -> None:
        """Write down the tokens of a step; vLLM may add to the name of a request."""
        arrays, making = self.arrays, []
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
