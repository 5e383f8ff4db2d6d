"""What deciding costs on the virtual clock, where a policy's own seconds would not pass."""

from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import IterationTable, table_record
from harness.costs.model import TableCosts
from harness.interface.entities import ServiceId

TIMED = ("timed", "measured")
"""Values of `engine.charge_decisions` by which decisions are timed: at no charge, and charged."""


@dataclass(slots=True)
class Deciding:
    """Seconds that are added to what a decision launches.

    None; the seconds that were measured of the decision and of the filling that it left to the
    engine, before the first iteration that it decides; or so many before every iteration, whether
    the policy was asked about it or had promised to decide the same, and before every request-level
    batch. Where decisions are timed, charged or not, a policy is asked about every batch: orders
    are not compiled and steady decisions are not repeated, so that policies can be compared.
    """

    costs: TableCosts
    is_timed: bool
    is_measured: bool
    fixed_s: float
    _records: dict[tuple[ServiceId, int, bool], NDArray[np.void]] = field(default_factory=dict)
    _tables: dict[tuple[ServiceId, int], IterationTable] = field(default_factory=dict)

    @classmethod
    def of(cls, charge: str | float, costs: TableCosts) -> "Deciding":
        """As `engine.charge_decisions` says. ValueError for what it may not be."""
        if charge in ("none", *TIMED):
            return cls(costs, charge in TIMED, charge == "measured", 0.0)
        if isinstance(charge, str) or not 0 <= charge < inf:
            raise ValueError(
                f"engine.charge_decisions is {charge}, it must be none, timed, measured, or seconds"
            )
        return cls(costs, False, False, float(charge))

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration, deciding about it included where that is fixed."""
        table, fixed_s = self.costs.table(service, tensor_parallel), self.fixed_s
        if not fixed_s:
            return table
        key = service, tensor_parallel
        if key not in self._tables:
            self._tables[key] = table._replace(
                prefill_base_s=table.prefill_base_s + fixed_s,
                decode_base_s=table.decode_base_s + fixed_s,
                # What a prefill and a decode of one iteration pay once.
                shared_s=table.shared_s + fixed_s,
            )
        return self._tables[key]

    def record(self, service: ServiceId, tensor_parallel: int, *, whole: bool) -> NDArray[np.void]:
        """The table as an array of one record, which compiled functions take at a small cost.

        Of a request-level batch (`whole`), deciding is not included.
        """
        key = service, tensor_parallel, whole
        if key not in self._records:
            costs = self.costs if whole else self
            self._records[key] = table_record(costs.table(service, tensor_parallel))
        return self._records[key]

    def before_s(self, measured_s: float, *, whole: bool) -> float:
        """Seconds before the first iteration of a batch, `whole` where it is request-level."""
        if self.is_measured:
            return measured_s
        return self.fixed_s if whole else 0.0
