"""What a dispatch policy may return instead of groups: how loaded groups are compared."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.interface.tables import Ints, RequestTable

_MOST = 2**31
"""What one request may weigh is below this: sums stay countable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A load order: the engine gives each request of a service to its group with the least load.

    Equally loaded groups come in the order of the deployment. The load of a group is what its
    unanswered requests weigh: the requests that it was given and has not answered, whatever it does
    with them. `weight` is a pure function of facts and predictions as they are when a request comes
    (or the order does, if that is later), a whole number per row of the table; None weighs each as
    one. With `adds_generated` the tokens that each has generated so far count, too.

    So stands it for a service until the service's groups change; then the policy is asked again.
    """

    weight: Callable[[RequestTable], Ints] | None = None
    adds_generated: bool = False

    def weights(self, table: RequestTable) -> Ints:
        """What every row weighs.

        ValueError when there is not one number per request, or one is not whole, negative or above
        what can be added up.
        """
        if self.weight is None:
            return np.ones(len(table.id), np.int64)
        given = self.weight(table)
        if given.shape != table.id.shape:
            raise ValueError(f"weight of shape {given.shape} for {len(table.id)} requests")
        right = (given >= 0) & (given < _MOST) & (given == np.floor(given))
        if not right.all():
            row = int(np.argmin(right))
            raise ValueError(
                f"the weight of r{table.id[row]} is {given[row]:g}, it must be a whole number from"
                " 0 to below 2**31"
            )
        weights: Ints = given.astype(np.int64)
        return weights


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """Requests of a service go to its groups in turn, in the order of the deployment.

    The turn goes on where it was when the groups change.
    """
