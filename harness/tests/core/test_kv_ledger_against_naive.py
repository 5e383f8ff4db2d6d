"""The ledger against a naive one that adds everything up anew at every question."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.kv_ledger import KvLedger
from harness.core.ledger_problems import problems
from harness.interface.decisions import Reservation
from harness.interface.entities import RequestId
from harness.tests.support.fakes import CHAT, CODE, a_request
from harness.tests.support.naive_ledger import BLOCK, SERVICES, NaiveLedger


def assert_same(ledger: KvLedger, naive: NaiveLedger) -> None:
    """Both ledgers tell the same of everything, and the cached sums are the true ones."""
    for service, facts in SERVICES.items():
        blocks = naive.free_bytes() // (facts.kv_bytes_per_token * BLOCK)
        assert ledger.free_blocks(service) == blocks
        assert ledger.uncommitted_tokens(service) == blocks * BLOCK
    for request, account in naive.accounts.items():
        if request >= 0:
            assert ledger.holding(request) == account.held
            assert ledger.reservation(request) == account.promise
            assert ledger.borrowers(request) == set(naive.borrowers(request))
    assert (problems(ledger) == []) == naive.is_sound()
    assert ledger.shortages() == problems(ledger)


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
    @settings(max_examples=25, deadline=None, derandomize=True)
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


@settings(max_examples=25, deadline=None, derandomize=True)
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
