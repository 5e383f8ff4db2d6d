"""KV-cache accounting: who holds how many tokens, what is promised, who lends to whom.

Pure bookkeeping in whole blocks; knows nothing of engines, physical blocks or time. With b over
the borrowers of x, every promise can be kept while, for each x that lends or borrows,

    used(x) = held(x) + sum of max(0, used(b) - own(b))  <=  own(x) + loan(x)
    lent(x) = sum of loan(b)                             <=  own(x) + loan(x)

and the committed bytes fit the capacity. Who has neither a promise nor a loan is an entry in a
dictionary; the others have an account, whose sums are kept up to date, so that a change costs the
length of the loan chain above it, never the number of requests.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from harness.interface.decisions import Reservation
from harness.interface.entities import Request, RequestId, Service, ServiceId


@dataclass(slots=True)
class _Account:
    """Of one with a promise or a loan: what it holds, and the sums over its borrowers (blocks)."""

    service: ServiceId
    held_blocks: int = 0
    promise: Reservation | None = None
    own_blocks: int = 0
    loan_blocks: int = 0
    used_blocks: int = 0
    lent_blocks: int = 0
    borrowers: frozenset[RequestId] = frozenset()

    @property
    def lender(self) -> RequestId | None:
        """In whose space its loan lies."""
        return None if self.promise is None else self.promise.lender

    @property
    def committed_blocks(self) -> int:
        """Taken from the free space; a borrower beyond its own is in its lender's."""
        if self.promise is None:
            return self.held_blocks
        if self.promise.lender is not None:
            return self.own_blocks
        return max(self.own_blocks, self.held_blocks)

    @property
    def overflow_blocks(self) -> int:
        """Used of the lender's space."""
        return 0 if self.lender is None else max(0, self.used_blocks - self.own_blocks)

    def promise_it(self, promise: Reservation | None, block_tokens: int) -> None:
        """Set the promise and its whole blocks; the loan's are those beyond the own ones."""
        own = promise.own_tokens if promise else 0
        region = own + promise.loan_tokens if promise else 0
        self.promise = promise
        self.own_blocks = -(-own // block_tokens)
        self.loan_blocks = -(-region // block_tokens) - self.own_blocks

    def strains(self, name: RequestId) -> list[str]:
        """One sentence per loan rule that this account breaks."""
        region = self.own_blocks + self.loan_blocks
        if not self.borrowers and self.lender is None:
            return []
        found = []
        if self.used_blocks > region:
            found.append(f"r{name} and its borrowers use {self.used_blocks} of {region} blocks")
        if self.lent_blocks > region:
            found.append(f"r{name} lends {self.lent_blocks} of {region} blocks")
        return found


# Stands for the account of whoever has none.
_PLAIN = _Account(ServiceId(""))


class KvLedger:
    """KV held, reserved and lent on one group. Estates have negative ids, requests never do.

    Methods raise ValueError, with a sentence, on unknown requests and impossible promises. What
    merely does not fit is accepted by `grow` and `reserve` and then named by `problems`, and is
    refused by `try_grow` and `try_reserve`.
    """

    def __init__(
        self, *, capacity_bytes: int, services: Mapping[ServiceId, Service], block_tokens: int = 16
    ) -> None:
        """An empty ledger of `capacity_bytes` in blocks of `block_tokens` tokens."""
        if capacity_bytes < 0 or block_tokens < 1:
            raise ValueError(f"no ledger of {capacity_bytes} bytes, {block_tokens} tokens a block")
        self.capacity_bytes = capacity_bytes
        self.services = services
        self.block_tokens = block_tokens
        self._block_bytes = {n: s.kv_bytes_per_token * block_tokens for n, s in services.items()}
        self._free_bytes = capacity_bytes
        self._services: dict[RequestId, ServiceId] = {}
        self._held: dict[RequestId, int] = {}
        self._accounts: dict[RequestId, _Account] = {}
        # Accounts that no copy shares; the others are replaced by one of their own when written.
        self._unshared: set[RequestId] = set()
        self._strained: set[RequestId] = set()
        self._orphans = 0

    def copy(self) -> "KvLedger":
        """A scratch ledger that starts equal; from then on neither follows the other."""
        twin = copy(self)
        twin._become(self)
        return twin

    def open(self, request: Request) -> None:
        """Start an empty account. ValueError if there is one, or its service is not here."""
        if request.id < 0:
            raise ValueError(
                f"r{request.id} cannot be opened: negative ids are for orphaned reservations"
            )
        if request.id in self._services:
            raise ValueError(f"r{request.id} is open already")
        if request.service not in self.services:
            raise ValueError(f"r{request.id} is of {request.service}, which has no KV here")
        self._services[request.id] = request.service

    def close(self, request: RequestId) -> None:
        """PreemptionMode, and forget the request."""
        self.preempt(request)
        del self._services[request]

    def grow(self, request: RequestId, tokens: int) -> None:
        """Hold `tokens` more, whether or not they fit."""
        self.grow_all({request: tokens})

    def grow_all(self, tokens: Mapping[RequestId, int]) -> None:
        """Hold as many tokens more as each request is given, whether or not they fit."""
        held, block_tokens = self._held, self.block_tokens
        for request, more in tokens.items():
            before = held[request] if request in held else self.holding(request)
            if more < 0:
                raise ValueError(
                    f"r{request} cannot grow by {more} tokens: KV shrinks by preemption"
                )
            held[request] = before + more
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
        blocks = len(tokens) + sum(tokens.values()) // self.block_tokens
        if not self._accounts and blocks * max(self._block_bytes.values()) <= self._free_bytes:
            return True
        trial = self.copy()
        trial.grow_all(tokens)
        return trial._is_sound

    def preempt(self, request: RequestId) -> None:
        """Drop KV and promise; what it had lent stays lent, by an orphaned reservation."""
        if self.borrowers(request):
            self._leave_orphan(request)
        self._shrink(request, 0)
        if request in self._accounts:
            self.reserve(request, None)
            del self._accounts[request]

    def reserve(self, request: RequestId, promise: Reservation | None) -> None:
        """Replace the promise, whether or not it fits.

        ValueError for negative sizes, a loan without a lender, a lender that is unknown or of
        another service, and loans in a circle. An orphaned reservation nobody borrows from any
        more goes.
        """
        service = self._service(request)
        if promise is not None:
            self._refuse_impossible(request, promise)
        account = self._writable(request)
        old_lender = account.lender
        if old_lender is not None:
            self._link(request, old_lender, account, -1)
        self._free_bytes += account.committed_blocks * self._block_bytes[service]
        account.promise_it(promise, self.block_tokens)
        self._free_bytes -= account.committed_blocks * self._block_bytes[service]
        if account.lender is not None:
            self._link(request, account.lender, account, 1)
        self._note_strain(request, account)
        if old_lender is not None and old_lender < 0 and not self._accounts[old_lender].borrowers:
            self.reserve(old_lender, None)
            del self._accounts[old_lender], self._services[old_lender]

    def try_reserve(self, request: RequestId, promise: Reservation | None) -> bool:
        """Replace the promise if every promise can still be kept; False changes nothing.

        ValueError as `reserve`.
        """
        before = self.reservation(request)
        # An orphaned reservation goes with its last borrower, and could not be brought back.
        of_orphan = before is not None and before.lender is not None and before.lender < 0
        trial = self.copy() if of_orphan else self
        trial.reserve(request, promise)
        fits = trial._is_sound
        if fits and of_orphan:
            self._become(trial)
        elif not fits and not of_orphan:
            self.reserve(request, before)
        return fits

    def blocks(self, tokens: int) -> int:
        """Whole blocks that hold `tokens`."""
        return -(-tokens // self.block_tokens)

    def holding(self, request: RequestId) -> int:
        """Tokens of KV the request holds."""
        tokens = self._held.get(request)
        if tokens is None:
            self._refuse_unknown(request)
            return 0
        return tokens

    def held_blocks(self, request: RequestId) -> int:
        """Blocks of KV the request holds."""
        return self.blocks(self.holding(request))

    def reservation(self, request: RequestId) -> Reservation | None:
        """What was promised to the request; its lender may have become an orphaned reservation."""
        self._refuse_unknown(request)
        return self._accounts.get(request, _PLAIN).promise

    def borrowers(self, request: RequestId) -> frozenset[RequestId]:
        """Those whose loans lie in the request's space."""
        self._refuse_unknown(request)
        return self._accounts.get(request, _PLAIN).borrowers

    def held_tokens(self, service: ServiceId) -> int:
        """Tokens of KV all requests of a service hold. Costs a look at each of them."""
        return sum(n for name, n in self._held.items() if self._services[name] == service)

    def capacity_blocks(self, service: ServiceId) -> int:
        """Blocks of this service that would fit an empty ledger."""
        return self.capacity_bytes // self._block_bytes[service]

    def free_blocks(self, service: ServiceId) -> int:
        """Blocks of this service neither held nor promised; negative when over capacity."""
        return self._free_bytes // self._block_bytes[service]

    def uncommitted_tokens(self, service: ServiceId) -> int:
        """Tokens of this service neither held nor promised; negative when over capacity."""
        return self.free_blocks(service) * self.block_tokens

    def shortages(self) -> list[str]:
        """Why a promise cannot be kept, from the running sums: free of cost when all can."""
        found = [self._over_capacity(self._free_bytes)] if self._free_bytes < 0 else []
        for name in sorted(self._strained):
            found += self._accounts[name].strains(name)
        return found

    def problems(self) -> list[str]:
        """Empty when every promise can be kept; re-computed from holdings and promises alone.

        Also tells where a running sum differs from that. Costs a scan of all requests.
        """
        true = self._recomputed()
        taken = (a.committed_blocks * self._block_bytes[a.service] for a in true.values())
        free = self.capacity_bytes - sum(taken)
        found = [self._over_capacity(free)] if free < 0 else []
        for name, account in sorted(true.items()):
            found += account.strains(name)
            kept = self._accounts.get(name, account)
            if kept != account:
                found.append(f"r{name} is kept as {kept} but is {account}")
        if free != self._free_bytes:
            found.append(f"free space is kept as {self._free_bytes} bytes but is {free}")
        return found

    @property
    def _is_sound(self) -> bool:
        return self._free_bytes >= 0 and not self._strained

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

    def _become(self, other: "KvLedger") -> None:
        """Take over the content of a ledger; accounts are shared until one of the two writes."""
        self._free_bytes = other._free_bytes
        self._services = other._services.copy()
        self._held = other._held.copy()
        self._accounts = other._accounts.copy()
        self._unshared = set()
        other._unshared = set()
        self._strained = other._strained.copy()
        self._orphans = other._orphans

    def _writable(self, name: RequestId) -> _Account:
        """The account to write to, opened where there was none."""
        if name not in self._unshared or name not in self._accounts:
            shared, blocks = self._accounts.get(name), self.blocks(self._held.get(name, 0))
            fresh = _Account(self._services[name], blocks, used_blocks=blocks)
            self._accounts[name] = fresh if shared is None else replace(shared)
            self._unshared.add(name)
        return self._accounts[name]

    def _shrink(self, request: RequestId, tokens: int) -> None:
        """Hold `tokens`, which are no more than before."""
        before = self._held.pop(request, 0)
        if tokens:
            self._held[request] = tokens
        self._take(request, self.blocks(tokens) - self.blocks(before))

    def _take(self, request: RequestId, blocks: int) -> None:
        """Count blocks that a request has come to hold, or given back (negative)."""
        if request not in self._accounts:
            self._free_bytes -= blocks * self._block_bytes[self._services[request]]
            return
        account = self._writable(request)
        committed = account.committed_blocks
        account.held_blocks += blocks
        taken = account.committed_blocks - committed
        self._free_bytes -= taken * self._block_bytes[account.service]
        self._burden(request, blocks, 0)

    def _link(self, request: RequestId, lender: RequestId, account: _Account, sign: int) -> None:
        """Put a loan on its lender (sign 1) or take it off (sign -1)."""
        host = self._writable(lender)
        host.borrowers ^= {request}
        self._burden(lender, sign * account.overflow_blocks, sign * account.loan_blocks)
        self._note_strain(lender, host)

    def _burden(self, lender: RequestId | None, used_blocks: int, lent_blocks: int) -> None:
        """Pass a change of what borrowers use and may use up the chain, as far as it is felt."""
        while lender is not None and (used_blocks or lent_blocks):
            account = self._writable(lender)
            overflow = account.overflow_blocks
            account.used_blocks += used_blocks
            account.lent_blocks += lent_blocks
            self._note_strain(lender, account)
            used_blocks, lent_blocks = account.overflow_blocks - overflow, 0
            lender = account.lender

    def _note_strain(self, name: RequestId, account: _Account) -> None:
        note = self._strained.add if account.strains(name) else self._strained.discard
        note(name)

    def _refuse_impossible(self, request: RequestId, promise: Reservation) -> None:
        if promise.own_tokens < 0 or promise.loan_tokens < 0:
            sizes = f"{promise.own_tokens} own and {promise.loan_tokens} lent tokens"
            raise ValueError(f"r{request} cannot be promised {sizes}")
        if promise.lender is None:
            if promise.loan_tokens:
                raise ValueError(f"r{request} borrows {promise.loan_tokens} tokens from nobody")
            return
        host = self._services.get(promise.lender)
        if host is None:
            raise ValueError(f"r{request} borrows from r{promise.lender}, which is not here")
        service = self._services[request]
        if host != service:
            raise ValueError(f"r{request} of {service} borrows from r{promise.lender} of {host}")
        above: RequestId | None = promise.lender
        while above is not None:
            if above == request:
                raise ValueError(f"r{request} borrows from r{promise.lender} in a circle")
            above = self._accounts.get(above, _PLAIN).lender

    def _leave_orphan(self, request: RequestId) -> None:
        """Put an empty account in the request's place towards its borrowers and its lender.

        Turning the loans into the borrowers' own overflow instead would break the promise of a
        lender that itself borrowed.
        """
        account = self._accounts[request]
        self._orphans += 1
        orphan = RequestId(-self._orphans)
        self._services[orphan] = account.service
        promise = account.promise
        if promise is not None and promise.lender is None:
            lent_tokens = account.lent_blocks * self.block_tokens
            promise = replace(promise, own_tokens=min(promise.own_tokens, lent_tokens))
        for borrower in sorted(account.borrowers):
            loan = self._accounts[borrower].promise
            assert loan is not None  # a borrower is one by its promise
            self.reserve(borrower, replace(loan, lender=orphan))
        self.reserve(orphan, promise)

    def _recomputed(self) -> dict[RequestId, _Account]:
        """An account of everybody with all sums computed anew, borrowers before their lenders."""
        true = {}
        for name, service in self._services.items():
            blocks = self.blocks(self._held.get(name, 0))
            true[name] = _Account(service, blocks, used_blocks=blocks)
            if name in self._accounts:
                true[name].promise_it(self._accounts[name].promise, self.block_tokens)
        for name, account in true.items():
            if account.lender is not None:
                true[account.lender].borrowers |= {name}
        waiting = {name: len(account.borrowers) for name, account in true.items()}
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:
            lender = true[name].lender
            if lender is not None:
                true[lender].used_blocks += true[name].overflow_blocks
                true[lender].lent_blocks += true[name].loan_blocks
                waiting[lender] -= 1
                if waiting[lender] == 0:
                    ready.append(lender)
        return true
