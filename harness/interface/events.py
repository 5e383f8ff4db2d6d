"""What happened. Policies learn from these; they never poll. All carry `now_s`, in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.interface.decisions import Batch
from harness.interface.entities import (
    AppId,
    DemandPrediction,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    ResourceId,
)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request came in and was given to a group."""

    now_s: float
    request: Request
    group: GroupId


@dataclass(frozen=True, slots=True)
class Moved:
    """An unfinished request was given to another group; its KV is gone, its output is kept."""

    now_s: float
    request: Request
    group: GroupId


@dataclass(frozen=True, slots=True)
class Predicted:
    """A length prediction is ready."""

    now_s: float
    request: RequestId
    length: LengthPrediction


@dataclass(frozen=True, slots=True)
class Iterated:
    """`iterations` equal batches ended; `new_tokens` counts all output tokens they produced.

    Under a priority order it is sure to be sent only if that `renews`: others cannot depend on it.
    """

    now_s: float
    group: GroupId
    batch: Batch
    duration_s: float
    new_tokens: Mapping[RequestId, int]
    iterations: int = 1


@dataclass(frozen=True, slots=True)
class Overran:
    """A request's context has outgrown the KV promised to it: more of it is not set aside."""

    now_s: float
    request: RequestId
    group: GroupId


@dataclass(frozen=True, slots=True)
class Finished:
    """A request produced its last token."""

    now_s: float
    request: Request
    output_tokens: int


@dataclass(frozen=True, slots=True)
class AppArrived:
    """An application came in; `predicted` is None unless a predictor predicts applications.

    `content` is the adapter or context that its calls read; None without a cache in host memory.
    """

    now_s: float
    app: AppId
    kind: str
    deadline_s: float | None
    predicted: DemandPrediction | None = None
    content: ResourceId | None = None


@dataclass(frozen=True, slots=True)
class UnitStarted:
    """One functional unit of an application begins: all its calls have arrived.

    `is_outside` says whether they run outside any LLM.
    """

    now_s: float
    app: AppId
    unit: str
    calls: tuple[RequestId, ...]
    prompt_tokens: tuple[int, ...]
    is_outside: bool = False


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """One functional unit of an application is done.

    `external_s` are the seconds that its calls outside any LLM took, in all.
    """

    now_s: float
    app: AppId
    unit: str
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    external_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AppFinished:
    """The last request of an application is done."""

    now_s: float
    app: AppId


Event = (
    Arrived
    | Moved
    | Predicted
    | Iterated
    | Overran
    | Finished
    | AppArrived
    | UnitStarted
    | UnitFinished
    | AppFinished
)
