"""Numbers of requests that move with their progress, in pieces that an engine can follow."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from harness.interface.tables import Floats, RequestTable


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

    def at(self, table: RequestTable) -> Floats:
        """The key of every row, where it is now.

        ValueError where the pieces of one have ended.
        """
        progress = table.gpu_s if self.by is Progress.GPU_S else table.generated_tokens
        ended = self.until[:, -1] <= progress
        if ended.any():
            row = int(np.argmax(ended))
            raise ValueError(
                f"the key of r{table.id[row]} ends at {self.until[row, -1]:g} {self.by.value},"
                f" it has {progress[row]:g}"
            )
        rows = np.arange(len(progress))
        piece = (self.until <= progress[:, None]).sum(axis=1)
        moved = self.value[rows, piece] + self.slope[rows, piece] * progress
        return np.where(np.isnan(moved), np.inf, moved)
