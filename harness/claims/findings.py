"""What is found of a claim at one specification: one choice for all that its paper leaves open."""

from dataclasses import dataclass
from enum import StrEnum

from harness.runs.stats import Estimate


class Agreement(StrEnum):
    """How far one finding agrees with the paper, from best to worst."""

    AGREES = "agrees"
    DIRECTION = "direction only"
    UNTOLD = "cannot be told"
    DIFFERS = "differs"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Finding:
    """How far figures agree, the figures as text, and what a reader must know beside them.

    `figure` is the one that stands for them in a specification curve, `seeds` how many are behind
    it, `basis` what its seconds rest on, `settings` at how many settings they are.
    """

    agreement: Agreement
    ours: str
    note: str = ""
    figure: Estimate | None = None
    seeds: int | None = None
    basis: str = ""
    settings: int = 0

    @property
    def is_told(self) -> bool:
        """Whether anything was found that can be held against the paper."""
        return self.agreement not in (Agreement.UNTOLD, Agreement.NOT_RUN)
