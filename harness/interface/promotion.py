"""When requests of a priority order that do not run are promoted, and by which key they then go."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from harness.interface.moving import MovingKey
from harness.interface.tables import Floats, RequestTable


@dataclass(frozen=True, slots=True)
class AfterSeconds:
    """A request that has not run for so many `seconds` goes by the moving `key` from then on.

    Progress is counted from the promotion. In the first piece, whatever its value, the request
    comes before all that are not in theirs, in order of promotion, those of one decision by id;
    other keys must be above -2**52. The seconds are counted from the group's first decision after
    the request came, or from the end of the last batch that it was in. A promoted request is
    promoted again when it has run since and then not for as long. Both keys have as many pieces,
    by the same progress and without an end.
    """

    seconds: float
    key: Callable[[RequestTable], MovingKey]

    def __post_init__(self) -> None:
        """Refuse times that never come."""
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds is {self.seconds}, it must be above 0 and finite")

    def keys(self, table: RequestTable, own: Floats | MovingKey) -> MovingKey:
        """The key of every row once it is promoted; `own` are those before.

        ValueError where these do not have as many pieces without an end.
        """
        promoted = self.key(table)
        if (
            not isinstance(own, MovingKey)
            or (own.until.shape, own.by) != (promoted.until.shape, promoted.by)
            or np.isfinite([own.until[:, -1], promoted.until[:, -1]]).any()
        ):
            raise ValueError(
                "with a promotion after seconds, both keys are moving keys of as many pieces, by"
                " the same progress, the last of which do not end"
            )
        return promoted


@dataclass(frozen=True, slots=True)
class AfterIterations:
    """A request that has not run in so many `iterations` of its group goes by the other `key`.

    It does so until it has run in `runs` iterations, and then by its own key again. Iterations of
    prompts and of any requests count. They are counted from the last one that the request ran in
    or was promoted after, or from the last one that had ended when it came to the group: one that
    is computed as it comes is its first without it. A promoted request that again has not run for
    as long is promoted again, for `runs` from then on. Both keys are numbers.
    """

    iterations: int
    runs: int
    key: Callable[[RequestTable], Floats]

    def __post_init__(self) -> None:
        """Refuse less than one iteration."""
        for name in ("iterations", "runs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")

    def keys(self, table: RequestTable, own: Floats | MovingKey) -> Floats:
        """The key of every row once it is promoted; `own` are those before.

        ValueError where these move, and where there is not one of each.
        """
        promoted = self.key(table)
        if isinstance(own, MovingKey) or promoted.shape != own.shape:
            raise ValueError(
                "with a promotion after iterations, both keys are numbers, one for every request"
            )
        return np.where(np.isnan(promoted), np.inf, promoted)


Promotion: TypeAlias = AfterSeconds | AfterIterations
