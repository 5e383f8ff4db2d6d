"""The four decisions a serving system makes, and the helpers it may be given."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, runtime_checkable

from harness.interface.decisions import Decision, Deployment, Prewarm
from harness.interface.entities import (
    AppId,
    DemandPrediction,
    GroupId,
    LengthPrediction,
    Request,
    ServiceId,
    Work,
)
from harness.interface.events import Event
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.tables import Floats, Ints
from harness.interface.views import ClusterView, GroupView


class Capability(Enum):
    """What a policy may require and not every run offers; checked before a run starts."""

    SHARED_GROUP = "several services on the same GPUs"
    GPU_SHARE = "batches side by side on fractions of the SMs"
    SWAP = "preempted KV kept in host memory"
    TO_COMPLETION = "request-level batches"
    REDEPLOY = "groups loaded and unloaded during a run"
    PREDICTIONS = "predicted lengths"
    PROMISED_KV = "KV that is promised to a request"


class SchedulingPolicy(Protocol):
    """Which requests run next in one group. One object serves every group of a run.

    Where groups are processes of their own, each has a copy that observes the events of all groups:
    what it knows of other groups must come from events.

    `subscribes` are the events it observes, and an engine need not build others.
    """

    subscribes: ClassVar[frozenset[type[Event]]]

    @property
    def requires(self) -> frozenset[Capability]:
        """What engine and predictor must offer to run it; may depend on its settings."""

    def observe(self, event: Event) -> None:
        """Update own state. Called in time order, before the decision the event triggers."""

    def schedule(self, view: GroupView) -> Decision:
        """Asked when `view.free_share` > 0 and something happened, or at `wake_s`."""


@runtime_checkable
class ReadsPriorities(Protocol):
    """A scheduling policy that orders by the priorities that requests come with."""

    reads_priorities: ClassVar[bool]


@runtime_checkable
class HasCounts(Protocol):
    """A scheduling policy that counts what it decides: loans, recalls, promotions."""

    def counts(self) -> Mapping[str, int]:
        """Counts so far by name, in a run's summary as `counts.NAME`.

        Groups in processes of their own are added up: what every copy of a policy observes would
        be counted once per copy.
        """


class DispatchPolicy(Protocol):
    """Which group takes a request.

    `reads_load` says whether `dispatch` looks at what the groups hold; where it does not, an engine
    may ask ahead of time. One that goes by load returns a `LoadOrder` and need not look; one that
    goes in turn returns a `TurnOrder`; one that names groups by what is unfinished says so
    (`ReadsUnfinished`).
    """

    reads_load: ClassVar[bool]

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId] | LoadOrder | TurnOrder:
        """One group for each request id, in order; or an order by which the engine chooses.

        Called with all requests of a service that arrive at one instant, or with its whole backlog
        when its groups change; while an order stands, not at all. For the requests of a service
        it names groups throughout a run, or never. Groups of the service are in
        `view.deployment`; one that is reading it while it serves others takes no request of it.
        """


@runtime_checkable
class ReadsUnfinished(Protocol):
    """A dispatch policy that reads `ClusterView.unfinished`, and nothing of groups.

    It is asked when requests have come, never ahead of time. Every engine can run it: real groups
    report which requests they have answered and how many tokens others have.
    """

    reads_unfinished: ClassVar[bool]


def reads_progress(policy: DispatchPolicy) -> bool:
    """Whether a dispatch policy reads what has been computed by the time that it is asked."""
    return policy.reads_load or isinstance(policy, ReadsUnfinished)


class PlacementPolicy(Protocol):
    """Which services are loaded on which GPUs.

    A group of other services under the name of one on the same GPUs is the same engine: it reads
    only what it lacks, without another start, and serves the services that it has meanwhile.
    """

    subscribes: ClassVar[frozenset[type[Event]]]

    @property
    def requires(self) -> frozenset[Capability]:
        """As of a scheduling policy."""

    def observe(self, event: Event) -> None:
        """Update own state. Called in time order, before `place`."""

    def place(self, view: ClusterView) -> Deployment:
        """Asked at start, when a service has answered its last request, and at `wake_s`."""


class PrewarmPolicy(Protocol):
    """Which cold backends to load ahead of need."""

    subscribes: ClassVar[frozenset[type[Event]]]

    def observe(self, event: Event) -> None:
        """Update own state."""

    def prewarm(self, view: ClusterView) -> Prewarm:
        """Asked after events of applications and at `wake_s`."""


class LengthPredictor(Protocol):
    """Predicts output lengths.

    `foresees` says whether it can be asked about calls that still wait for others' answers, as soon
    as their application arrives; any other predictor is asked when a request arrives.
    """

    foresees: ClassVar[bool]

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The prediction, and the seconds it takes; the engine delivers it that much later."""


@runtime_checkable
class PredictsApplications(Protocol):
    """A predictor that also predicts what a whole application demands, at once."""

    def predict_application(self, app: AppId) -> DemandPrediction:
        """Asked when the application arrives."""


class CostModel(Protocol):
    """Seconds and memory of a service on this hardware."""

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""

    def intake_s(self, service: ServiceId, prompt_tokens: Ints) -> Floats:
        """Seconds from when each request is sent until its scheduler has it: parsing, tokenising.

        They take no GPU time.
        """

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """Seconds to load the weights and set up communication.

        So long does each of `replicas` take that start loading at the same time.
        """

    def start_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """The part of `load_s` in which no weights are read: processes, communication."""

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """KV blocks that fit beside the weights; 0 where the weights alone do not fit."""

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """Bytes of KV of a whole group beside the weights of all these; 0 where they do not fit.

        For one service so many as its `kv_blocks` take.
        """

    def block_tokens(self, service: ServiceId) -> int:
        """Tokens of one KV block."""


@dataclass(frozen=True, slots=True)
class System:
    """One serving system: its policies."""

    name: str
    scheduling: SchedulingPolicy
    dispatch: DispatchPolicy
    placement: PlacementPolicy
    prewarm: PrewarmPolicy | None = None
    predictor: LengthPredictor | None = None

    @property
    def listeners(self) -> "tuple[SchedulingPolicy | PlacementPolicy | PrewarmPolicy, ...]":
        """Policies that observe events; an object in two roles is one of them, once."""
        every = {id(it): it for it in (self.scheduling, self.placement, self.prewarm) if it}
        return tuple(every.values())
