"""What functions of a priority order give must be one number per request, and countable."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.interface.decisions import PriorityOrder
from harness.interface.moving import MovingKey
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.serving import SERVICE, rule


def test_a_piece_must_end_at_a_number() -> None:
    one = np.zeros((3, 1))
    with pytest.raises(ValueError, match="until must be numbers, inf for never"):
        MovingKey(value=one, slope=one, until=one * np.nan)


RESERVED: dict[str, Callable[[RequestTable], Floats]] = {
    "reserve_tokens of shape": lambda table: table.arrival_s[:1],
    "reserve_tokens of r1 are inf": lambda table: table.arrival_s + np.inf,
    "reserve_tokens of r1 are 1e.18, not below": lambda table: table.arrival_s + 1e18,
}


@pytest.mark.parametrize("said", RESERVED)
def test_what_is_set_aside_is_a_number_per_request(said: str) -> None:
    order = PriorityOrder(None, rule(), reserve_tokens=RESERVED[said])
    with pytest.raises(ValueError, match=said):
        order.reserved_tokens(_table())


def _table() -> RequestTable:
    two = np.array([1, 2], np.int64)
    none = np.zeros(2)
    return RequestTable(
        two, none, two, 0 * two, 0 * two, none, two, none, none, 0 * two, (SERVICE,)
    )
