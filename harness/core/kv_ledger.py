"""KV-cache accounting: tokens held by each request, tokens promised, and loans between requests.

Pure bookkeeping in whole blocks; knows nothing of engines, physical blocks or time. Who has neither
a promise nor a loan is an entry in a dictionary; the others have an account (`kv_loans`). A change
never costs the number of requests.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

from harness.core.kv_loans import Account, Loans
from harness.interface.decisions import Reservation
from harness.interface.entities import Content, Request, RequestId, Service, ServiceId
from harness.interface.views import GroupView


class KvLedger:
    """KV held, promised and lent on one group.

    A request that is freed while others borrow from it leaves an orphaned reservation, which has a
    negative id (requests never do), holds nothing, and goes with its last borrower.

    Methods raise ValueError, with a sentence, on unknown requests and impossible promises. What
    merely does not fit is accepted by `grow` and `reserve` and then named by `problems`, and is
    refused by `try_grow` and `try_reserve`. Whether KV outlives its request for others to use is
    what `caches` says: see `PrefixLedger`.
    """

    caches: ClassVar[bool] = False

    def __init__(
        self,
        *,
        capacity_bytes: int,
        services: Mapping[ServiceId, Service],
        block_tokens: int | Mapping[ServiceId, int] = 16,
    ) -> None:
        """An empty ledger of `capacity_bytes` in blocks of `block_tokens` tokens.

        Services may have blocks of different tokens: the attribute of that name is 0 then.
        """
        if isinstance(block_tokens, int):
            block_tokens = dict.fromkeys(services, block_tokens)
        fewest = min(block_tokens.values(), default=1)
        if capacity_bytes < 0 or fewest < 1:
            raise ValueError(f"no ledger of {capacity_bytes} bytes, {fewest} tokens a block")
        self.capacity_bytes, self.services = capacity_bytes, services
        self._block_tokens = block_tokens
        self.block_tokens = fewest if fewest == max(block_tokens.values(), default=1) else 0
        self._block_bytes = {n: s.kv_bytes_per_token * block_tokens[n] for n, s in services.items()}
        self._free_bytes = capacity_bytes
        self._services: dict[RequestId, ServiceId] = {}
        self._held: dict[RequestId, int] = {}
        self._loans, self._orphans = Loans(), 0
        self.changes = 0  # by which one can tell a ledger from itself earlier

    def copy(self) -> Self:
        """A scratch ledger that starts equal; from then on neither follows the other."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._become(self)
        return twin

    def emptied(self) -> Self:
        """An empty ledger of the same size."""
        twin = self.copy()
        for request in list(twin._services):
            twin.close(request)
        return twin

    def open(self, request: Request, generated_tokens: int = 0) -> None:
        """Start an empty account of a request that has generated so much elsewhere.

        ValueError if there is one, or its service is not here.
        """
        if request.id < 0:
            raise ValueError(
                f"r{request.id} cannot be opened: negative ids are for orphaned reservations"
            )
        if request.id in self._services:
            raise ValueError(f"r{request.id} is open already")
        if request.service not in self.services:
            raise ValueError(f"r{request.id} is of {request.service}, which has no KV here")
        self._services[request.id] = request.service
        self.changes += 1

    def close(self, request: RequestId) -> None:
        """Free the KV of a request that is answered or goes elsewhere, and forget it."""
        self.free(request)
        del self._services[request]

    def grow(self, request: RequestId, tokens: int) -> None:
        """Hold `tokens` more, whether or not they fit."""
        self.grow_all({request: tokens})

    def grow_all(self, tokens: Mapping[RequestId, int]) -> None:
        """Hold as many tokens more as each request is given, whether or not they fit."""
        self.changes += 1
        held, same_tokens = self._held, self.block_tokens
        for request, more in tokens.items():
            before = held[request] if request in held else self.holding(request)
            if more < 0:
                raise ValueError(f"r{request} cannot grow by {more} tokens: KV shrinks by `free`")
            held[request] = before + more
            block_tokens = same_tokens or self._block_tokens[self._services[request]]
            beyond = more - -before % block_tokens
            if beyond > 0:
                self._take(request, -(-beyond // block_tokens))

    def try_grow(self, request: RequestId, tokens: int) -> bool:
        """Hold `tokens` more if every promise can still be kept; False changes nothing."""
        before = self.holding(request)
        self.grow_all({request: tokens})
        if self._is_sound:
            return True
        self._shrink(request, before)
        return False

    def fits(self, tokens: Mapping[RequestId, int]) -> bool:
        """Whether every promise could be kept if each request held so many tokens more."""
        if not tokens.keys() <= self._services.keys():
            self._refuse_unknown(min(tokens.keys() - self._services.keys()))
        # A bound without a look at each: it may open one block more than its tokens fill.
        same_tokens = self.block_tokens
        fewest_tokens = same_tokens or min(self._block_tokens.values())
        blocks = len(tokens) + sum(tokens.values()) // fewest_tokens
        most_bytes = blocks * max(self._block_bytes.values())
        if not self._loans.count and most_bytes <= self._free_bytes:
            return True
        held, accounts = self._held, self._loans.accounts
        free_bytes, linked = self._free_bytes, {}
        for request, more in tokens.items():
            block_tokens = same_tokens or self._block_tokens[self._services[request]]
            beyond = more - -held.get(request, 0) % block_tokens
            if beyond <= 0:
                continue
            blocks, account = -(-beyond // block_tokens), accounts.get(request)
            if account is not None:
                if account.is_linked:
                    linked[request] = more
                    continue
                # Of its own promise it fills what it does not hold yet.
                blocks -= max(0, account.own_blocks - account.held_blocks)
                if blocks <= 0:
                    continue
            free_bytes -= blocks * self._block_bytes[self._services[request]]
        if not linked:
            return free_bytes >= 0 and not self._loans.overdrawn
        # Only those with loans change more than the free space.
        trial = self.copy()
        trial.grow_all(linked)
        return trial._is_sound and free_bytes + trial._free_bytes >= self._free_bytes

    def free(self, request: RequestId) -> None:
        """Drop KV and promise; what it had lent stays lent, by an orphaned reservation."""
        self.changes += 1
        if self.borrowers(request):
            self._leave_orphan(request)
        self._shrink(request, 0)
        if request in self._loans.accounts:
            self.reserve(request, None)
            del self._loans.accounts[request]

    def reserve(self, request: RequestId, promise: Reservation | None) -> None:
        """Replace the promise, whether or not it fits.

        ValueError for negative sizes, a loan without a lender, a lender that is unknown or of
        another service, and loans in a circle.
        """
        self.changes += 1
        service = self._service(request)
        if promise is not None:
            self._loans.refuse_impossible(request, promise, self._services)
        self._open_account(request)
        old_lender = self._loans.of(request).lender
        if promise is not None and promise.lender is not None:
            self._open_account(promise.lender)
        taken = self._loans.promise(request, promise, self._block_tokens[service])
        self._free_bytes -= taken * self._block_bytes[service]
        if old_lender is not None and old_lender < 0 and not self._loans.of(old_lender).borrowers:
            self.reserve(old_lender, None)
            del self._loans.accounts[old_lender], self._services[old_lender]

    def try_reserve(
        self, request: RequestId, promise: Reservation | None, *, spare_blocks: int = 0
    ) -> bool:
        """Replace the promise if every promise can still be kept; False changes nothing.

        What it takes of the free space must leave `spare_blocks` of its service free. ValueError as
        `reserve`.
        """
        before, free_bytes = self.reservation(request), self._free_bytes
        lender = request if promise is None or promise.lender is None else promise.lender
        opens = [name for name in {request, lender} if name not in self._loans.accounts]
        # An orphaned reservation goes with its last borrower, and could not be brought back.
        of_orphan = before is not None and before.lender is not None and before.lender < 0
        trial = self.copy() if of_orphan else self
        trial.reserve(request, promise)
        left_blocks = trial.free_blocks(self._services[request])
        spares = trial._free_bytes >= free_bytes or left_blocks >= spare_blocks
        fits = trial._is_sound and spares
        if fits and of_orphan:
            self._become(trial)
        elif not fits and not of_orphan:
            self.reserve(request, before)
            for name in opens:
                del self._loans.accounts[name]
        return fits

    def blocks(self, tokens: int, service: ServiceId | None = None) -> int:
        """Whole blocks that hold `tokens`; of a service, which counts where blocks differ."""
        return -(-tokens // (self.block_tokens or self.tokens_of_block(service)))

    def cached_tokens(self, request: RequestId) -> int:
        """Tokens of its context whose KV a request that holds none finds here when it begins."""
        return 0

    def beginning(self, request: RequestId, blocks: int) -> list[Content]:
        """Names of the first full blocks of a context; none where nothing is cached."""
        return []

    def own_blocks(self, request: RequestId) -> int:
        """Blocks that this request holds and no other does."""
        return self.blocks(self.holding(request), self._services[request])

    def newcomer_blocks(self, request: RequestId, tokens: int) -> int:
        """Free blocks that a request which holds none takes for so much of its context."""
        return self.blocks(tokens, self._services[request])

    def holding(self, request: RequestId) -> int:
        """Tokens of KV the request holds."""
        tokens = self._held.get(request)
        if tokens is None:
            self._refuse_unknown(request)
            return 0
        return tokens

    def reservation(self, request: RequestId) -> Reservation | None:
        """What was promised to the request; its lender may have become an orphaned reservation."""
        account = self._loans.accounts.get(request)
        if account is None or request < 0:
            self._refuse_unknown(request)
            return None
        return account.promise

    @property
    def holders(self) -> Mapping[RequestId, int]:
        """Tokens of KV of each request that holds any; not to be changed."""
        return self._held

    @property
    def shared_tokens(self) -> int:
        """How many more tokens requests hold than there are, since they share blocks."""
        return 0

    @property
    def promises(self) -> Mapping[RequestId, Reservation]:
        """What is promised to each request and orphaned reservation; not to be changed."""
        return self._loans.promises

    def borrowers(self, request: RequestId) -> frozenset[RequestId]:
        """Those whose loans lie in the request's space."""
        self._refuse_unknown(request)
        return self._loans.of(request).borrowers

    def guests(self, request: RequestId) -> frozenset[RequestId]:
        """Its borrowers, with those of an orphaned reservation in the place of that."""
        found, left = set[RequestId](), list(self.borrowers(request))
        for borrower in left:
            if borrower < 0:
                left += self._loans.of(borrower).borrowers
            else:
                found.add(borrower)
        return frozenset(found)

    def tokens_of_block(self, service: ServiceId | None) -> int:
        """Tokens of one block of this service. ValueError where none is given."""
        if service is None:
            raise ValueError(f"blocks of which service? Their tokens differ: {self._block_tokens}")
        return self._block_tokens[service]

    def block_bytes(self, service: ServiceId) -> int:
        """Bytes of one block of this service."""
        return self._block_bytes[service]

    def capacity_blocks(self, service: ServiceId) -> int:
        """Blocks of this service that would fit an empty ledger."""
        return self.capacity_bytes // self._block_bytes[service]

    def free_blocks(self, service: ServiceId) -> int:
        """Blocks of this service neither held nor promised; negative when over capacity."""
        return self._free_bytes // self._block_bytes[service]

    def uncommitted_tokens(self, service: ServiceId) -> int:
        """Tokens of this service neither held nor promised; negative when over capacity."""
        return self.free_blocks(service) * self._block_tokens[service]

    def shortages(self) -> list[str]:
        """Why a promise cannot be kept, from the running sums: free of cost when all can."""
        over = [self._over_capacity(self._free_bytes)] if self._free_bytes < 0 else []
        return over + self._loans.broken_rules()

    @property
    def _is_sound(self) -> bool:
        return self._free_bytes >= 0 and not self._loans.overdrawn

    def _over_capacity(self, free_bytes: int) -> str:
        return f"{-free_bytes} bytes over the KV capacity of {self.capacity_bytes}"

    def _refuse_unknown(self, request: RequestId) -> None:
        if request < 0:
            raise ValueError(f"r{request} is an orphaned reservation, not a request")
        self._service(request)

    def _service(self, name: RequestId) -> ServiceId:
        if name not in self._services:
            raise ValueError(f"r{name} has no KV account here")
        return self._services[name]

    def _become(self, other: Self) -> None:
        """Take over the content of a ledger."""
        self.changes += 1
        self._free_bytes, self._orphans = other._free_bytes, other._orphans
        self._services = other._services.copy()
        self._held = other._held.copy()
        self._loans = other._loans.copy()

    def _open_account(self, name: RequestId) -> None:
        if name not in self._loans.accounts:
            service = self._services[name]
            held = self.blocks(self._held.get(name, 0), service)
            self._loans.accounts[name] = Account(service, held, used_blocks=held)

    def _shrink(self, request: RequestId, tokens: int) -> None:
        """Hold `tokens`, which are no more than before."""
        before = self._held.pop(request, 0)
        if tokens:
            self._held[request] = tokens
        service = self._services[request]
        self._take(request, self.blocks(tokens, service) - self.blocks(before, service))

    def _take(self, request: RequestId, blocks: int) -> None:
        """Count blocks that a request has come to hold, or given back (negative)."""
        if request in self._loans.accounts:
            blocks = self._loans.hold(request, blocks)
        self._free_bytes -= blocks * self._block_bytes[self._services[request]]

    def _leave_orphan(self, request: RequestId) -> None:
        """Put an empty account in the request's place towards its borrowers and its lender.

        Turning the loans into the borrowers' own overflow instead would break the promise of a
        lender that itself borrowed.
        """
        account = self._loans.of(request)
        self._orphans += 1
        orphan = RequestId(-self._orphans)
        self._services[orphan] = account.service
        promise = account.promise
        if promise is not None and promise.lender is None:
            lent_tokens = account.lent_blocks * self._block_tokens[account.service]
            promise = replace(promise, own_tokens=min(promise.own_tokens, lent_tokens))
        for borrower in sorted(account.borrowers):
            loan = self._loans.of(borrower).promise
            assert loan is not None  # a borrower is one by its promise
            self.reserve(borrower, replace(loan, lender=orphan))
        self.reserve(orphan, promise)


def ledger_of(view: GroupView) -> KvLedger:
    """The ledger behind what a view shows of KV. TypeError where it is another object."""
    if not isinstance(view.kv, KvLedger):
        raise TypeError(f"the KV of {view.group.id} is a {type(view.kv).__name__}, not a KvLedger")
    return view.kv
