"""The ledger by hand: blocks, promises, loans, orphaned reservations, and what it costs."""

from collections.abc import Callable

import pytest

from harness.interface.decisions import Reservation
from harness.interface.entities import RequestId, ServiceId
from harness.interface.kv_ledger import KvLedger
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
    assert kv.held_blocks(R1) == 2
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
    assert kv.problems() == ["r1 and its borrowers use 3 of 1 blocks", "r1 lends 3 of 1 blocks"]


def test_services_with_blocks_of_different_tokens_count_their_own() -> None:
    """Blocks of 12 bytes: 12 tokens of chat, 4 of code."""
    kv = KvLedger(capacity_bytes=60, services=SERVICES, block_tokens={CHAT: 12, CODE: 4})
    for number, service in ((0, CHAT), (1, CODE)):
        kv.open(a_request(RequestId(number), service=service))
        kv.grow(RequestId(number), 13)
    assert (kv.held_blocks(RequestId(0)), kv.held_blocks(RequestId(1))) == (2, 4)
    assert (kv.free_blocks(CHAT), kv.uncommitted_tokens(CODE)) == (-1, -4)
    kv.free(RequestId(1))
    assert kv.fits({RequestId(0): 11, RequestId(1): 12})
    assert not kv.fits({RequestId(0): 11, RequestId(1): 13})
    assert kv.try_reserve(RequestId(1), Reservation(9))
    assert (kv.uncommitted_tokens(CHAT), kv.problems()) == (0, [])
    with pytest.raises(ValueError, match="blocks of which service"):
        kv.blocks(13)


def test_nested_loans_fit_inside_each_other() -> None:
    """8 blocks lend 4, of which 2 are lent on: the innermost guest takes no free space."""
    kv = a_ledger(8, R1, R2, R3)
    assert kv.try_reserve(R1, Reservation(8 * BLOCK))
    assert kv.try_reserve(R2, Reservation(0, 4 * BLOCK, R1))
    assert kv.try_reserve(R3, Reservation(0, 2 * BLOCK, R2))
    assert kv.free_blocks(CHAT) == 0
    assert kv.try_grow(R3, 2 * BLOCK)
    assert kv.try_grow(R2, 2 * BLOCK)
    assert not kv.try_grow(R2, 1)
    assert kv.try_grow(R1, 4 * BLOCK)
    assert not kv.try_grow(R1, 1)


def test_a_lender_that_leaves_early_leaves_an_orphan_of_what_it_lent() -> None:
    kv = a_ledger(8, R1, R2, R3)
    kv.reserve(R1, Reservation(8 * BLOCK))
    kv.reserve(R2, Reservation(0, 3 * BLOCK, R1))
    kv.grow(R1, 4 * BLOCK)
    kv.close(R1)
    assert kv.reservation(R2) == Reservation(0, 3 * BLOCK, RequestId(-1))
    assert kv.free_blocks(CHAT) == 5
    assert kv.try_grow(R3, 5 * BLOCK)
    assert kv.try_grow(R2, 3 * BLOCK)
    kv.close(R2)
    assert kv.free_blocks(CHAT) == 3


def test_an_orphan_is_settled_when_its_borrower_pays_for_itself() -> None:
    kv = a_ledger(4, R1, R2, R3)
    kv.reserve(R1, Reservation(4 * BLOCK))
    kv.reserve(R2, Reservation(0, 2 * BLOCK, R1))
    kv.free(R1)
    assert kv.free_blocks(CHAT) == 2
    assert not kv.copy().try_reserve(R2, Reservation(5 * BLOCK))
    assert kv.try_reserve(R2, Reservation(3 * BLOCK))
    assert kv.free_blocks(CHAT) == 1
    with pytest.raises(ValueError, match="r3 borrows from r-1, which is not here"):
        kv.reserve(R3, Reservation(0, BLOCK, RequestId(-1)))
    assert kv.problems() == []


def test_refusal_changes_nothing_even_where_an_orphan_would_have_gone() -> None:
    kv = a_ledger(4, R1, R2, R3)
    kv.reserve(R1, Reservation(2 * BLOCK))
    kv.reserve(R2, Reservation(0, 2 * BLOCK, R1))
    kv.free(R1)
    kv.grow(R3, 2 * BLOCK)
    assert not kv.try_reserve(R2, Reservation(3 * BLOCK))
    assert kv.reservation(R2) == Reservation(0, 2 * BLOCK, RequestId(-1))
    assert kv.problems() == []


def test_a_copy_and_its_origin_do_not_follow_each_other() -> None:
    kv = a_ledger(6, R1, R2, R3)
    kv.reserve(R1, Reservation(2 * BLOCK))
    trial = kv.copy()
    trial.grow(R1, 3)
    kv.grow(R2, 2)
    kv.reserve(R3, Reservation(0, BLOCK, R1))
    kv.close(R2)
    assert (kv.holding(R1), trial.holding(R1)) == (0, 3)
    assert (kv.borrowers(R1), trial.borrowers(R1)) == (frozenset({R3}), frozenset())
    assert trial.holding(R2) == 0
    assert (kv.held_tokens(CHAT), trial.held_tokens(CHAT)) == (0, 3)
    assert kv.problems() == trial.problems() == []


def test_growth_of_many_is_bounded_by_blocks_not_tokens() -> None:
    """Of 3 blocks of 4, 12 tokens fill all; 7 tokens as 5, 1 and 1 would need a fourth."""
    kv = a_ledger(3, R1, R2, R3)
    assert kv.fits({R1: BLOCK, R2: BLOCK, R3: BLOCK})
    assert not kv.fits({R1: BLOCK + 1, R2: 1, R3: 1})
    kv.grow_all({R1: BLOCK - 1, R2: 1, R3: 2})
    assert kv.free_blocks(CHAT) == 0
    assert kv.fits({R1: 1, R2: BLOCK - 1, R3: 2})
    assert not kv.fits({R1: 2})
    assert kv.problems() == []


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


class CountingDict(dict):  # type: ignore[type-arg]
    """Remembers what was looked up in it, and refuses to be scanned."""

    looked_up: set[RequestId]

    def __getitem__(self, key: RequestId) -> object:
        self.looked_up.add(key)
        return super().__getitem__(key)

    def get(self, key: RequestId, default: object = None) -> object:
        self.looked_up.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.looked_up.add(key)  # type: ignore[arg-type]
        return super().__contains__(key)

    def __iter__(self) -> object:  # type: ignore[override]
        raise AssertionError("all accounts are scanned")

    keys = values = items = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("on_copy", [True, False])
def test_questions_touch_only_the_loan_chain(on_copy: bool) -> None:
    """Of 300 requests, three in a chain of loans: those three are looked at and no other."""
    kv = a_ledger(1000, *(RequestId(number) for number in range(300)))
    kv.reserve(R1, Reservation(8 * BLOCK))
    kv.reserve(R2, Reservation(0, 4 * BLOCK, R1))
    kv.reserve(R3, Reservation(0, 2 * BLOCK, R2))
    asked = kv.copy() if on_copy else kv
    looked_up: set[RequestId] = set()
    for owner, name in ((asked._loans, "accounts"), (asked, "_held"), (asked, "_services")):
        counting = CountingDict(getattr(owner, name))
        counting.looked_up = looked_up
        setattr(owner, name, counting)
    assert asked.try_grow(R3, 2 * BLOCK)
    assert not asked.try_grow(R3, 1)
    assert asked.try_reserve(R3, Reservation(BLOCK, 2 * BLOCK, R2))
    assert looked_up == {R1, R2, R3}
    looked_up.clear()
    assert asked.try_grow(R4, 5 * BLOCK)
    asked.free(R4)
    assert asked.shortages() == []
    assert looked_up == {R4}
