"""The designed batches through one engine, several times over."""

import time
from dataclasses import replace

import pandas as pd

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.vllm.designed import Designed
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.group import EngineSettings
from harness.engines.vllm.processor import has_gpus
from harness.engines.vllm.ray import RayGroup, slots_of_ray
from harness.engines.vllm.timed_batches import InOrder, fitting_design, timed
from harness.interface.entities import GpuId, Group, GroupId, Service
from harness.interface.policies import System

WARM_UP = 8
"""Of the runs, as many as are run before the first is timed."""
LEAST_REPEATS = 2


class CalibrationSweep:
    """One engine that the designed runs go through, again and again.

    It is in `engine.loaded`, and stays there until `stop`.
    """

    def __init__(self, engine: Vllm, service: Service) -> None:
        """Load the model."""
        self.engine = replace(engine, keep_loaded=True, loads_first=True, speed_sweep=False)
        self.service = service
        # Where a placement of one group asks for costs, those of any machine do.
        costs = ProfileCosts(gpu="CPU", profile_dir="cpu_vllm", memory_share=0.9, parts=PARTS)
        placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=costs)
        policy = InOrder(engine.max_num_batched_tokens, engine.max_num_seqs)
        self._system = System("sweep", policy, RoundRobin(), placement)
        self.run(Designed((16,), engine.max_num_batched_tokens, 0))
        (self.group,) = self.engine.loaded.values()

    def run(self, designed: Designed) -> pd.DataFrame:
        """`timed_batches.COLUMNS` of the iterations of one run."""
        return timed(self.engine, [self.service], self._system, service=0, designed=designed)

    def design(self, most_requests: int) -> list[Designed]:
        """Every run of at most so many requests whose KV fits."""
        runs = fitting_design(self.group, self.engine, self.service)
        return [run for run in runs if len(run.prompts) <= most_requests]

    def stop(self) -> None:
        """Free the engine."""
        for group in self.engine.loaded.values():
            group.stop()
        self.engine.loaded.clear()


def measure(
    sweep: CalibrationSweep, repeats: int, most_requests: int, *, most_s: float = 480.0
) -> pd.DataFrame:
    """Every iteration of the design, `repetition` by repetition, as long as there is time.

    At least `LEAST_REPEATS`, and none that would end after `most_s`.
    """
    runs = sweep.design(most_requests)
    for designed in runs[:: max(1, len(runs) // WARM_UP)]:
        sweep.run(designed)
    found: list[pd.DataFrame] = []
    started_s = time.monotonic()
    while len(found) < repeats:
        rows = pd.concat([sweep.run(designed) for designed in runs], ignore_index=True)
        found.append(rows.assign(repetition=len(found)))
        spent_s = time.monotonic() - started_s
        print(f"repetition {len(found)}: {len(rows)} iterations, {spent_s:.0f} s", flush=True)
        if len(found) >= LEAST_REPEATS and spent_s * (1 + 1 / len(found)) > most_s:
            break
    return pd.concat(found, ignore_index=True)


def load_seconds(settings: EngineSettings, service: Service) -> float:
    """Seconds from asking for a group until its process has loaded its engine."""
    group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
    with slots_of_ray(group.tensor_parallel):
        started_s = time.monotonic()
        served = RayGroup.start(
            (settings,),
            group=group,
            services=[service],
            policy=InOrder(settings.max_num_batched_tokens, settings.max_num_seqs),
            keep_answers=False,
            on_gpus=has_gpus(),
        )
        served.wait()
        seconds = time.monotonic() - started_s
        served.stop()
    return seconds
