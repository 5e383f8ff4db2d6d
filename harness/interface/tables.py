"""Many requests at once, as numpy columns: what a priority order's key and planners read."""

from dataclasses import MISSING, dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from harness.interface.entities import ServiceId

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PER_S = 2.0**20
"""Steps of a second in which attained GPU time counts for an order."""

TIE_S = 1e-6
"""So long before its time a service is starved: sums of seconds differ less between engines."""


def attained_s(gpu_s: Floats) -> Floats:
    """GPU seconds in whole steps: two that only rounding in another order tells apart are equal."""
    steps: Floats = np.rint(gpu_s * PER_S)
    return steps / PER_S


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Many requests at once: one row each, ascending by id, read-only numpy columns.

    `gpu_s` is the GPU time attained, in steps of 2**-20 s. `predicted_mean_tokens` and `deadline_s`
    are NaN where there is none. `service` is the index of each request's service in `services`.
    `app` is the application of each request; where it is not given, each is one of its own. A lower
    `priority` is the more urgent one; all have 0 where it is not given.
    """

    id: Ints
    arrival_s: Floats
    prompt_tokens: Ints
    generated_tokens: Ints
    kv_tokens: Ints
    gpu_s: Floats
    max_output_tokens: Ints
    deadline_s: Floats
    predicted_mean_tokens: Floats
    service: Ints
    services: tuple[ServiceId, ...]
    app: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    priority: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        """Fill the columns that are not given: each request is an application of its own."""
        for name in _OPTIONAL:
            if len(getattr(self, name)) != len(self.id):
                nothing = np.zeros(len(self.id), np.int64)
                object.__setattr__(self, name, self.id if name == "app" else nothing)

    def of(self, rows: Bools | Ints | slice) -> "RequestTable":
        """Some of the rows, by a mask or by their places."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return RequestTable(**columns, services=self.services)


_OPTIONAL = tuple(it.name for it in fields(RequestTable) if it.default_factory is not MISSING)
_COLUMNS = tuple(name for name in RequestTable.__slots__ if name != "services")


@dataclass(frozen=True, slots=True)
class CallTable:
    """Calls of applications that have come in which still wait for answers of other calls.

    One row each, ascending by id, of what is known of them: `own_tokens` is their prompt without
    the answers that are yet to be carried to them. `predicted_mean_tokens` is NaN where there is no
    prediction.
    """

    id: Ints
    own_tokens: Ints
    max_output_tokens: Ints
    predicted_mean_tokens: Floats

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.id)
