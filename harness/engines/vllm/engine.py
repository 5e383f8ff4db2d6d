"""Real vLLM under the policies: arrivals on the wall clock, seconds measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from harness.config import inputs
from harness.engines.engine import Slots, refuse_unmet_needs
from harness.engines.recorder import Recorder
from harness.engines.simulator.warm_up import warm_up
from harness.engines.vllm.options import VllmOptions
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.engines.vllm.run import VllmRun
from harness.engines.vllm.timed_batches import how_fast
from harness.interface.apps import OUTSIDE
from harness.interface.entities import ServiceId
from harness.interface.policies import Capability, System
from harness.workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm(VllmOptions):
    """An engine: vLLM, measured."""

    @property
    def supports(self) -> frozenset[Capability]:
        """Groups come and go in processes of their own only: one that loads holds up no other."""
        comes = {Capability.REDEPLOY} if self.ray else set()
        promised = set() if self.prefix_caching else {Capability.PROMISED_KV}
        return frozenset({Capability.SHARED_GROUP, *comes, *promised})

    @property
    def about(self) -> str:
        """Its seconds are measured."""
        return f"measured on {engine_name(self.dtype)}"

    @property
    def runs_alone(self) -> bool:
        """Two at a time would measure each other."""
        return True

    @property
    def slots(self) -> Slots:
        """A whole node and its GPUs; groups in processes of their own ask for theirs."""
        if self.ray:
            return Slots(cpus=0, gpus=0)
        return Slots(cpus=None, gpus=len(self.cluster.gpus) if has_gpus() else 0)

    @property
    def computed_by(self) -> tuple[str, ...]:
        """What computes, and what reads models and text."""
        return ("vllm", "torch", "transformers", "tokenizers")

    def files(self, services: Sequence[str]) -> Mapping[str, str]:
        """The models that stand for the services, and the texts of prompts."""
        models = sorted({self.model_path(ServiceId(name)) for name in services})
        paths = [Path(self.texts)] if self.texts else []
        for model in models:
            paths += [path for path in sorted(Path(model).rglob("*")) if path.is_file()]
        return inputs.digests(paths)

    def warm_up(self) -> None:
        """Load the kernel for placements that plan by simulating; vLLM itself needs none."""
        warm_up()

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload in real time. See `Engine.run`."""
        if Capability.REDEPLOY in system.placement.requires - self.supports:
            raise ValueError(
                "groups that come and go need a process each, engine.ray=true: one that loads "
                "would hold up the others"
            )
        refuse_unmet_needs(self, system)
        if system.dispatch.reads_load:
            name = type(system.dispatch).__name__
            raise ValueError(
                f"{name} reads the load of groups, which real ones do not show; it may return a"
                " LoadOrder, which is followed by what they were given and have answered"
            )
        if self.speed_sweep and not has_gpus():
            self._run_between_sweeps(workload, system, recorder)
        else:
            _run(self, workload, system, recorder)

    def _run_between_sweeps(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """The run, on engines that are timed before it and after it."""
        options = replace(self, keep_loaded=True)
        services = [service for service in workload.services if service.id != OUTSIDE]
        try:
            before = how_fast(options, services, system)
            _run(options, workload, system, recorder)
            after = how_fast(options, services, system)
        finally:
            if not self.keep_loaded:
                for group in self.loaded.values():
                    group.stop()
                self.loaded.clear()
        recorder.speed = pd.concat([before.assign(when="before"), after.assign(when="after")])


def _run(options: VllmOptions, workload: Workload, system: System, recorder: Recorder) -> None:
    run = VllmRun(options=options, workload=workload, system=system, recorder=recorder)
    run.serve()
    run.write()
