"""The ledger by hand: blocks, promises, loans, and what is refused."""

from collections.abc import Callable

import pytest

from harness.core.kv_ledger import KvLedger
from harness.core.ledger_problems import problems
from harness.interface.decisions import Reservation
from harness.interface.entities import RequestId, ServiceId
from harness.tests.support.fakes import CHAT, CODE, a_request
from harness.tests.support.naive_ledger import BLOCK, SERVICES

R1, R2, R3, R4 = (RequestId(number) for number in (1, 2, 3, 4))


def a_ledger(blocks: int, *requests: RequestId) -> KvLedger:
    """A ledger of `blocks` blocks of the chat service with these requests open."""
    kv = KvLedger(capacity_bytes=blocks * BLOCK, services=SERVICES, block_tokens=BLOCK)
    for request in requests:
        kv.open(a_request(request))
    return kv


def test_tokens_are_counted_in_whole_blocks() -> None:
    kv = a_ledger(3, R1, R2)
    kv.grow(R1, BLOCK + 1)
    assert kv.free_blocks(CHAT) == 1
    assert kv.free_blocks(CODE) == 0
    assert kv.capacity_blocks(CHAT) == 3
    assert kv.capacity_blocks(CODE) == 1
    assert not kv.try_grow(R2, BLOCK + 1)
    assert kv.holding(R2) == 0
    assert kv.try_grow(R1, BLOCK - 1)


def test_three_guests_with_one_token_each_need_three_blocks() -> None:
    """Counted in tokens a loan of 4 would hold them all; it is one block, so only one fits."""
    kv = a_ledger(1, R1, R2, R3, R4)
    kv.reserve(R1, Reservation(BLOCK))
    for guest in (R2, R3, R4):
        kv.reserve(guest, Reservation(0, 1, R1))
    assert kv.shortages() == ["r1 lends 3 of 1 blocks"]
    for guest in (R2, R3, R4):
        kv.grow(guest, 1)
    assert problems(kv) == ["r1 and its borrowers use 3 of 1 blocks", "r1 lends 3 of 1 blocks"]


def test_services_with_blocks_of_different_tokens_count_their_own() -> None:
    """Blocks of 12 bytes: 12 tokens of chat, 4 of code."""
    kv = KvLedger(capacity_bytes=60, services=SERVICES, block_tokens={CHAT: 12, CODE: 4})
    for number, service in ((0, CHAT), (1, CODE)):
        kv.open(a_request(RequestId(number), service=service))
        kv.grow(RequestId(number), 13)
    assert (kv.free_blocks(CHAT), kv.uncommitted_tokens(CODE)) == (-1, -4)
    kv.free(RequestId(1))
    assert kv.fits({RequestId(0): 11, RequestId(1): 12})
    assert not kv.fits({RequestId(0): 11, RequestId(1): 13})
    assert kv.try_reserve(RequestId(1), Reservation(9))
    assert (kv.uncommitted_tokens(CHAT), problems(kv)) == (0, [])
    with pytest.raises(ValueError, match="blocks of which service"):
        kv.blocks(13)


def test_errors_are_sentences() -> None:
    kv = a_ledger(4, R1, R2)
    kv.open(a_request(3, service=CODE))
    kv.reserve(R1, Reservation(8, 4, R2))
    cases: list[tuple[str, Callable[[], object]]] = [
        ("r9 has no KV account here", lambda: kv.grow(RequestId(9), 1)),
        ("r9 has no KV account here", lambda: kv.try_reserve(RequestId(9), Reservation(1))),
        ("r1 is open already", lambda: kv.open(a_request(1))),
        ("r-1 cannot be opened", lambda: kv.open(a_request(-1))),
        (
            "r5 is of poet, which has no KV",
            lambda: kv.open(a_request(5, service=ServiceId("poet"))),
        ),
        ("r1 cannot grow by -1 tokens", lambda: kv.grow(R1, -1)),
        ("r2 cannot grow by -3 tokens", lambda: kv.grow_all({R1: 0, R2: -3})),
        ("r8 has no KV account here", lambda: kv.fits({R1: 1, RequestId(8): 1, RequestId(9): 1})),
        ("r-1 is an orphaned reservation, not a request", lambda: kv.free(RequestId(-1))),
        ("r1 borrows 4 tokens without a lender", lambda: kv.reserve(R1, Reservation(1, 4))),
        (
            "r1 borrows from r9, which is not",
            lambda: kv.reserve(R1, Reservation(1, 4, RequestId(9))),
        ),
        ("r1 borrows from r1 in a circle", lambda: kv.reserve(R1, Reservation(1, 4, R1))),
        ("r2 borrows from r1 in a circle", lambda: kv.try_reserve(R2, Reservation(1, 4, R1))),
        ("r2 of chat borrows from r3 of code", lambda: kv.reserve(R2, Reservation(1, 4, R3))),
        ("promised -1 own and 0 lent tokens", lambda: kv.reserve(R1, Reservation(-1))),
        (
            "no ledger of -1 bytes, 16 tokens a block",
            lambda: KvLedger(capacity_bytes=-1, services=SERVICES),
        ),
    ]
    for sentence, act in cases:
        with pytest.raises(ValueError, match=sentence):
            act()
    assert kv.reservation(R1) == Reservation(8, 4, R2)
