"""Applications: which calls make a unit, and which calls run outside any LLM."""

from dataclasses import dataclass

import numpy as np

from harness.interface.entities import ServiceId
from harness.interface.tables import Bools, Floats, Ints

OUTSIDE = ServiceId("outside")
"""The service of calls that run outside any LLM, the last of a workload's; no group serves it."""


@dataclass(frozen=True, slots=True)
class Apps:
    """The applications of a workload, as columns.

    `kind` has one entry per application, an index of `kinds`; the others have one per call. `unit`
    indexes `units`; `instance` numbers the runs of units, of which all calls start together.
    `external_s` are the seconds of a call outside any LLM, NaN for calls of an LLM.
    """

    kinds: tuple[str, ...]
    kind: Ints
    units: tuple[str, ...]
    unit: Ints
    instance: Ints
    external_s: Floats

    @property
    def outside(self) -> Bools:
        """Which calls run outside any LLM."""
        return ~np.isnan(self.external_s)
