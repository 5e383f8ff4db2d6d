"""The ledger's rules written for reading: everything is added up anew at every question."""

from dataclasses import dataclass, field, replace

from harness.interface.decisions import Reservation
from harness.interface.entities import Request, RequestId, ServiceId
from harness.tests.support.fakes import CHAT, CODE, a_service

BLOCK = 4
SERVICES = {
    CHAT: a_service(CHAT, kv_bytes_per_token=1),
    CODE: a_service(CODE, kv_bytes_per_token=3),
}


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
