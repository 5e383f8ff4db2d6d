"""What an engine is: something that serves a workload as a system decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from harness.engines.recorder import Recorder
from harness.interface.policies import Capability, System
from harness.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Slots:
    """What a run takes of the node of a cluster that it is on.

    `cpus` is None for all of them, so that no other run is there, and 0 where a run asks the
    cluster itself for what it needs.
    """

    cpus: int | None
    gpus: int


class Engine(Protocol):
    """Time and compute. Everything else (ledger, checks, views, metrics) is shared."""

    @property
    def supports(self) -> frozenset[Capability]:
        """What policies may need of it."""

    @property
    def about(self) -> str:
        """Whether its seconds are simulated or measured, and on what."""

    @property
    def runs_alone(self) -> bool:
        """Whether a run needs the machine to itself, so that no two go on at the same time."""

    @property
    def slots(self) -> Slots:
        """What a run takes of a node."""

    @property
    def computed_by(self) -> tuple[str, ...]:
        """Packages whose versions a result depends on, beside those of every run."""

    def files(self, services: Sequence[str]) -> Mapping[str, str]:
        """What it reads to serve these, by name, with the sha256."""

    def warm_up(self) -> None:
        """Load what must not be loaded while a run is timed. Once per process; later calls pass."""

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the whole workload; everything that happened goes to the recorder.

        Raises IllegalDecision when a policy breaks a rule and ValueError when the system cannot
        run here (a capability is missing, a request can never fit).
        """


WITH_PREFIX_CACHING = frozenset({Capability.REDEPLOY, Capability.PREDICTIONS})
"""What policies may need of an engine that caches prefixes, as vLLM does."""


def needs_of(system: System) -> frozenset[Capability]:
    """What its policies need."""
    return frozenset(system.scheduling.requires | system.placement.requires)


def refuse_unmet_needs(engine: Engine, system: System) -> None:
    """Raise ValueError where a policy needs what engine and predictor do not offer."""
    offered = engine.supports
    if system.predictor is not None:
        offered |= {Capability.PREDICTIONS}
    for policy in (system.scheduling, system.placement):
        if missing := policy.requires - offered:
            lacking = ", ".join(sorted(c.value for c in missing))
            raise ValueError(
                f"{type(engine).__name__} lacks what {type(policy).__name__} needs: {lacking}"
            )


def refuse_seconds(horizon_s: float | None, hand_over_s: float = 0.0) -> None:
    """Raise ValueError where a run would end before it begins, or answers be early or lost."""
    if horizon_s is not None and not horizon_s > 0:
        raise ValueError(f"engine.horizon_s is {horizon_s}, it must be above 0")
    if not 0 <= hand_over_s < inf:
        raise ValueError(f"engine.hand_over_s is {hand_over_s}, it must be 0 or more")
