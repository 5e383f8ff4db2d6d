"""Numbers of requests that move with their progress, in pieces that an engine can follow."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from harness.interface.tables import Floats, Ints, RequestTable

PROMOTED = -(2.0**52)
"""Below the keys of all requests that are not promoted; whole numbers above it differ."""


class Progress(Enum):
    """What a number moves with: the tokens that a request has generated, or its GPU seconds."""

    TOKENS = "tokens generated"
    GPU_S = "GPU seconds attained"


@dataclass(frozen=True, slots=True)
class MovingKey:
    """A key that moves with a request's progress: a row per request, a column per piece.

    With progress p, in what `by` says, a request is in its first piece whose `until` exceeds p, or
    in its last, and its key is `value + slope * p`. From the `until` of the last on (infinite:
    never), the engine asks for the request's pieces again.
    """

    value: Floats
    slope: Floats
    until: Floats
    by: Progress = Progress.TOKENS

    def __post_init__(self) -> None:
        """Refuse columns of different shapes, and pieces that are not in ascending order."""
        shape = self.until.shape
        if len(shape) != 2 or not shape[1] or not self.value.shape == self.slope.shape == shape:
            raise ValueError(
                f"a moving key of {self.value.shape} values, {self.slope.shape} slopes and"
                f" {shape} ends of pieces: each needs a row per request and a column per piece"
            )
        if np.isnan(self.until).any():
            raise ValueError("a moving key's until must be numbers, inf for never")
        if not (self.until[:, 1:] > self.until[:, :-1]).all():
            raise ValueError("a moving key's until must ascend from piece to piece")

    def of(self, rows: Ints) -> "MovingKey":
        """The keys of some of the rows."""
        return MovingKey(self.value[rows], self.slope[rows], self.until[rows], self.by)

    def where_promoted(self, promoted: "MovingKey", begun: Floats, rounds: Ints) -> "MovingKey":
        """These keys, but the `promoted` ones where `rounds` is not 0.

        Those count progress from `begun` on, and in their first piece go by `rounds`, before all
        keys of requests that have not been promoted.
        """
        is_up, since = (rounds > 0)[:, None], begun[:, None]
        value, slope = promoted.value - promoted.slope * since, promoted.slope.copy()
        value[:, 0], slope[:, 0] = PROMOTED + rounds, 0.0
        return MovingKey(
            value=np.where(is_up, value, self.value),
            slope=np.where(is_up, slope, self.slope),
            until=np.where(is_up, promoted.until + since, self.until),
            by=self.by,
        )

    def progress(self, table: RequestTable) -> Floats:
        """How far every row has come, in what the key moves with."""
        if self.by is Progress.GPU_S:
            return table.gpu_s
        return table.generated_tokens.astype(np.float64)

    def at(self, table: RequestTable, rows: Ints | None = None) -> Floats:
        """The key of every row of a table, where it is now; `rows` are theirs here, if not all.

        ValueError where the pieces of one have ended.
        """
        progress = self.progress(table)
        if rows is None:
            rows = np.arange(len(progress))
        until = self.until[rows]
        ended = until[:, -1] <= progress
        if ended.any():
            row = int(np.argmax(ended))
            raise ValueError(
                f"the key of r{table.id[row]} ends at {until[row, -1]:g} {self.by.value},"
                f" it has {progress[row]:g}"
            )
        piece = (until <= progress[:, None]).sum(axis=1)
        moved = self.value[rows, piece] + self.slope[rows, piece] * progress
        return np.where(np.isnan(moved), np.inf, moved)
