"""When a placement is asked on the virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.engines.ask import ask_deployment
from harness.engines.lifecycle import Lifecycle
from harness.engines.recorder import Recorder
from harness.engines.simulator.deploying import Deployer
from harness.engines.simulator.timeline import Kind, Timeline
from harness.interface.entities import ServiceId
from harness.interface.events import Event, ServiceDrained


@dataclass(slots=True, kw_only=True)
class Placing:
    """Asks for a deployment at the start, when services are drained, and when it is time.

    The time is the `wake_s` of the latest deployment: one that was asked for earlier is forgotten.
    `drained` has the services that have answered all since the placement was asked last.
    """

    lifecycle: Lifecycle
    timeline: Timeline
    deployer: Deployer
    recorder: Recorder
    catch_up: Callable[[], None]
    tell: Callable[[Event], None]
    drained: list[ServiceId] = field(default_factory=list)
    _wake_s: float | None = -1.0

    def ask_if_due(self) -> None:
        """Tell of what is drained, then ask and deploy where it is time to."""
        now_s = self.lifecycle.state.now_s
        for service in self.drained:
            self.tell(ServiceDrained(now_s, service))
        is_due = bool(self.drained) or (self._wake_s is not None and self._wake_s <= now_s)
        self.drained.clear()
        if not is_due or self.lifecycle.is_over:
            return
        self.catch_up()
        life = self.lifecycle
        deployment = ask_deployment(life.system.placement, life.view, self.recorder)
        self._wake_s = deployment.wake_s
        if deployment.wake_s is not None:
            self.timeline.add(deployment.wake_s, Kind.PLACEMENT_WAKES)
        if deployment != life.state.deployment:
            self.deployer.deploy(deployment)
