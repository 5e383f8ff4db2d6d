"""The ledger against a naive one that adds everything up anew at every question."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.decisions import Reservation
from harness.interface.entities import Request, RequestId, ServiceId
from harness.interface.kv_ledger import KvLedger
from harness.tests.support.fakes import CHAT, CODE, a_request, a_service

BLOCK = 4
SERVICES = {
    CHAT: a_service(CHAT, kv_bytes_per_token=1),
    CODE: a_service(CODE, kv_bytes_per_token=3),
}
R1, R2, R3, R4 = (RequestId(number) for number in (1, 2, 3, 4))


@dataclass
class NaiveAccount:
    """What the naive ledger knows of a request; everything else it derives."""

    service: ServiceId
    held: int = 0
    promise: Reservation | None = None


@dataclass
class NaiveLedger:
    """The rules of the ledger, written for reading: O(requests^2) and no cached number."""

    capacity_bytes: int
    accounts: dict[RequestId, NaiveAccount] = field(default_factory=dict)
    orphans: int = 0

    def open(self, request: Request) -> None:
        self.accounts[request.id] = NaiveAccount(request.service)

    def close(self, request: RequestId) -> None:
        self.free(request)
        del self.accounts[request]

    def grow(self, request: RequestId, tokens: int) -> None:
        self.accounts[request].held += tokens

    def reserve(self, request: RequestId, promise: Reservation | None) -> None:
        self.accounts[request].promise = promise
        while bare := [e for e in self.accounts if e < 0 and not self.borrowers(e)]:
            del self.accounts[bare[0]]

    def free(self, request: RequestId) -> None:
        account = self.accounts[request]
        if borrowers := self.borrowers(request):
            self.orphans += 1
            orphan = RequestId(-self.orphans)
            promise = account.promise
            if promise and promise.lender is None:
                lent = self.lent(request) * BLOCK
                promise = replace(promise, own_tokens=min(promise.own_tokens, lent))
            self.accounts[orphan] = NaiveAccount(account.service, 0, promise)
            for borrower in borrowers:
                loan = self.accounts[borrower].promise
                assert loan
                self.accounts[borrower].promise = replace(loan, lender=orphan)
        account.held = 0
        self.reserve(request, None)

    def borrowers(self, request: RequestId) -> list[RequestId]:
        return [b for b, a in self.accounts.items() if a.promise and a.promise.lender == request]

    def own(self, request: RequestId) -> int:
        promise = self.accounts[request].promise
        return -(-promise.own_tokens // BLOCK) if promise else 0

    def region(self, request: RequestId) -> int:
        promise = self.accounts[request].promise
        return -(-(promise.own_tokens + promise.loan_tokens) // BLOCK) if promise else 0

    def held(self, request: RequestId) -> int:
        return -(-self.accounts[request].held // BLOCK)

    def used(self, request: RequestId) -> int:
        guests = self.borrowers(request)
        return self.held(request) + sum(max(0, self.used(b) - self.own(b)) for b in guests)

    def lent(self, request: RequestId) -> int:
        return sum(self.region(b) - self.own(b) for b in self.borrowers(request))

    def bytes_of(self, request: RequestId, blocks: int) -> int:
        return blocks * BLOCK * SERVICES[self.accounts[request].service].kv_bytes_per_token

    def free_bytes(self) -> int:
        taken = 0
        for request, account in self.accounts.items():
            if account.promise and account.promise.lender is not None:
                blocks = self.own(request)
            else:
                blocks = max(self.own(request), self.held(request))
            taken += self.bytes_of(request, blocks)
        return self.capacity_bytes - taken

    def is_sound(self) -> bool:
        bound = [
            r
            for r, a in self.accounts.items()
            if self.borrowers(r) or (a.promise and a.promise.lender is not None)
        ]
        return self.free_bytes() >= 0 and all(
            self.used(r) <= self.region(r) and self.lent(r) <= self.region(r) for r in bound
        )

    def in_circle(self, request: RequestId, lender: RequestId | None) -> bool:
        while lender is not None and lender != request:
            promise = self.accounts[lender].promise
            lender = promise.lender if promise else None
        return lender is not None

    def physical_bytes(self) -> int:
        return sum(self.bytes_of(r, self.held(r)) for r in self.accounts)

    def clone(self) -> "NaiveLedger":
        accounts = {r: replace(a) for r, a in self.accounts.items()}
        return NaiveLedger(self.capacity_bytes, accounts, self.orphans)


def assert_same(ledger: KvLedger, naive: NaiveLedger) -> None:
    """Both ledgers tell the same of everything, and the cached sums are the true ones."""
    for service, facts in SERVICES.items():
        of_service = [a.held for a in naive.accounts.values() if a.service == service]
        blocks = naive.free_bytes() // (facts.kv_bytes_per_token * BLOCK)
        assert ledger.held_tokens(service) == sum(of_service)
        assert ledger.free_blocks(service) == blocks
        assert ledger.uncommitted_tokens(service) == blocks * BLOCK
    for request, account in naive.accounts.items():
        if request >= 0:
            assert ledger.holding(request) == account.held
            assert ledger.held_blocks(request) == naive.held(request)
            assert ledger.reservation(request) == account.promise
            assert ledger.borrowers(request) == set(naive.borrowers(request))
    assert (ledger.problems() == []) == naive.is_sound()
    assert ledger.shortages() == ledger.problems()


class Story:
    """Random operations on both ledgers at once, drawn from a hypothesis source."""

    def __init__(self, data: st.DataObject, *, sound: bool) -> None:
        self.data = data
        self.sound = sound
        capacity = data.draw(st.integers(20, 400), label="capacity")
        self.ledger = KvLedger(capacity_bytes=capacity, services=SERVICES, block_tokens=BLOCK)
        self.naive = NaiveLedger(capacity)
        self.opened = 0

    def requests(self) -> list[RequestId]:
        return [request for request in self.naive.accounts if request >= 0]

    def open(self) -> None:
        service = CHAT if self.data.draw(st.integers(0, 4)) else CODE
        request = a_request(self.opened, service=service)
        self.opened += 1
        self.ledger.open(request)
        self.naive.open(request)

    def grow(self) -> None:
        request = self.pick()
        tokens = self.data.draw(st.integers(0, 3 * BLOCK), label="tokens")
        self.apply(
            lambda: self.ledger.try_grow(request, tokens),
            lambda: self.ledger.grow(request, tokens),
            lambda naive: naive.grow(request, tokens),
        )

    def grow_all(self) -> None:
        """Several at once: `fits` answers, `grow_all` does it in either case of `sound`."""
        requests = self.data.draw(st.lists(st.sampled_from(self.requests()), unique=True))
        growth = {r: self.data.draw(st.integers(0, 3 * BLOCK), label="tokens") for r in requests}
        after = self.naive.clone()
        for request, tokens in growth.items():
            after.grow(request, tokens)
        fits = self.ledger.fits(growth)
        assert fits == after.is_sound()
        assert_same(self.ledger, self.naive)
        if fits or not self.sound:
            self.ledger.grow_all(growth)
            self.naive = after

    def reserve(self) -> None:
        request = self.pick()
        promise = self.promise(request)
        if promise and self.naive.in_circle(request, promise.lender):
            with pytest.raises(ValueError, match=r"in a circle"):
                self.ledger.reserve(request, promise)
            return
        self.apply(
            lambda: self.ledger.try_reserve(request, promise),
            lambda: self.ledger.reserve(request, promise),
            lambda naive: naive.reserve(request, promise),
        )

    def promise(self, request: RequestId) -> Reservation | None:
        if self.data.draw(st.integers(0, 5)) == 0:
            return None
        own = self.data.draw(st.integers(0, 6 * BLOCK), label="own")
        service = self.naive.accounts[request].service
        lenders = [r for r, a in self.naive.accounts.items() if a.service == service]
        if self.data.draw(st.booleans()):
            lender = self.data.draw(st.sampled_from(lenders), label="lender")
            return Reservation(own, self.data.draw(st.integers(0, 4 * BLOCK)), lender)
        return Reservation(own)

    def free(self) -> None:
        request = self.pick()
        self.ledger.free(request)
        self.naive.free(request)

    def close(self) -> None:
        request = self.pick()
        self.ledger.close(request)
        self.naive.close(request)

    def pick(self) -> RequestId:
        return self.data.draw(st.sampled_from(self.requests()), label="request")

    def apply(
        self,
        ask: Callable[[], bool],
        tell: Callable[[], None],
        expected: Callable[[NaiveLedger], None],
    ) -> None:
        """Ask where only sound states are wanted, and hold the answer against the naive one."""
        after = self.naive.clone()
        expected(after)
        if self.sound:
            fits = ask()
            assert fits == after.is_sound()
        else:
            fits = True
            tell()
        if fits:
            self.naive = after

    def step(self) -> None:
        moves = [
            self.grow,
            self.grow,
            self.grow,
            self.grow_all,
            self.reserve,
            self.reserve,
            self.free,
            self.close,
        ]
        wants_more = len(self.requests()) < 6
        may_open = [self.open] if wants_more else []
        self.data.draw(st.sampled_from([*may_open, *(moves if self.requests() else [])]))()


@pytest.mark.parametrize("sound", [True, False])
def test_running_sums_equal_the_naive_ledger(sound: bool) -> None:
    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.data())
    def tell(data: st.DataObject) -> None:
        story = Story(data, sound=sound)
        for _ in range(data.draw(st.integers(5, 40))):
            story.step()
            assert_same(story.ledger, story.naive)
            if story.naive.is_sound():
                assert story.naive.physical_bytes() <= story.naive.capacity_bytes
            else:
                assert not sound

    tell()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_a_copy_of_a_copy_lives_its_own_life(data: st.DataObject) -> None:
    story = Story(data, sound=True)
    for _ in range(data.draw(st.integers(5, 25))):
        story.step()
    parents = []
    for _ in range(2):
        parents.append((story.ledger, story.naive.clone()))
        story.ledger = story.ledger.copy()
        for _ in range(data.draw(st.integers(0, 8))):
            story.step()
            assert_same(story.ledger, story.naive)
    for ledger, naive in parents:
        assert_same(ledger, naive)


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
        ("r1 borrows 4 tokens from nobody", lambda: kv.reserve(R1, Reservation(1, 4))),
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
