"""What a policy may ask of blocks, by hand: their names, and those of no other request."""

from harness.core.kv_ledger import KvLedger
from harness.core.prefix_ledger import PrefixLedger
from harness.interface.entities import AppId, Request, RequestId, Service, ServiceId, TenantId
from harness.workloads.prefixes import Prefixes

A = Service(ServiceId("a"), kv_bytes_per_token=1, max_context_tokens=64)
ONE, TWO = RequestId(0), RequestId(1)


def _open(kv: KvLedger) -> None:
    """Prompts of 10 and 12 tokens."""
    for name, prompt in ((ONE, 10), (TWO, 12)):
        kv.open(Request(name, A.id, AppId(0), TenantId("a"), 0.0, prompt, 9))


def _ledger() -> PrefixLedger:
    """The second context begins with nine tokens of the first: two blocks of four."""
    kv = PrefixLedger(
        capacity_bytes=64,
        services={A.id: A},
        block_tokens=4,
        contents=Prefixes([-1, 0], [0, 9]).contents(4),
    )
    _open(kv)
    return kv


def test_names_of_the_blocks_of_a_context() -> None:
    kv = _ledger()
    assert kv.beginning(ONE, 9) == [(0, 0), (0, 1)]
    # The last token of a context is in a block of it, though that block is always computed.
    assert kv.beginning(TWO, 9) == [(0, 0), (0, 1), (1, 2)]
    assert kv.beginning(TWO, 1) == [(0, 0)]
    kv.grow(ONE, 10)
    assert kv.cached_tokens(TWO) == 8


def test_blocks_that_no_other_request_holds() -> None:
    kv = _ledger()
    kv.grow(ONE, 10)
    assert (kv.own_blocks(ONE), kv.own_blocks(TWO)) == (3, 0)
    kv.grow(TWO, 4)
    assert (kv.own_blocks(ONE), kv.own_blocks(TWO)) == (1, 1)
    free = kv.free_blocks(A.id)
    kv.free(ONE)
    assert kv.free_blocks(A.id) - free == 1
    assert kv.own_blocks(TWO) == 3


def test_a_ledger_that_caches_nothing_names_nothing() -> None:
    kv = KvLedger(capacity_bytes=64, services={A.id: A}, block_tokens=4)
    _open(kv)
    kv.grow(ONE, 10)
    assert kv.beginning(ONE, 9) == []
    assert (kv.own_blocks(ONE), kv.own_blocks(TWO)) == (3, 0)
