"""KV-cache accounting: who holds how many tokens, what is promised, who lends to whom.

Pure bookkeeping in whole blocks; knows nothing of engines, physical blocks or time. With b over
the borrowers of x, every promise can be kept while, for each x that lends or borrows,

    used(x) = held(x) + sum of max(0, used(b) - own(b))  <=  own(x) + loan(x)
    lent(x) = sum of loan(b)                             <=  own(x) + loan(x)

and the committed bytes fit the capacity. All sums are kept up to date, so that a change costs the
length of the loan chain above it, never the number of requests.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from harness.decisions import Reservation
from harness.entities import Request, RequestId, Service, ServiceId


@dataclass(slots=True)
class _Account:
    """What one request holds and was promised, and the sums over those it lends to (blocks)."""

    service: ServiceId
    held_tokens: int = 0
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
        per_token = {name: service.kv_bytes_per_token for name, service in services.items()}
        self._block_bytes = {name: size * block_tokens for name, size in per_token.items()}
        self._held_tokens = dict.fromkeys(services, 0)
        self._free_bytes = capacity_bytes
        # In a copy: only the accounts it changed, None for one that is gone; else see the parent.
        self._accounts: dict[RequestId, _Account | None] = {}
        self._strained: set[RequestId] = set()
        self._estates = self._changes = self._parent_changes = 0
        self._parent: KvLedger | None = None

    def copy(self) -> "KvLedger":
        """A scratch ledger that starts equal; costs what is changed in it, not what is in it.

        It reads unchanged accounts from this one, so this one must rest while the copy is used:
        once it has changed, the copy raises RuntimeError instead of mixing the two.
        """
        twin = copy(self)
        twin._accounts = {}
        twin._adopt_sums(self)
        twin._parent = self
        twin._parent_changes = self._changes
        return twin

    def open(self, request: Request) -> None:
        """Start an empty account. ValueError if there is one, or its service is not here."""
        if request.id < 0:
            raise ValueError(f"r{request.id} cannot be opened: negative ids are for estates")
        if self._find(request.id) is not None:
            raise ValueError(f"r{request.id} is open already")
        if request.service not in self.services:
            raise ValueError(f"r{request.id} is of {request.service}, which has no KV here")
        self._accounts[request.id] = _Account(request.service)
        self._changes += 1

    def close(self, request: RequestId) -> None:
        """Evict, and forget the request."""
        self.evict(request)
        self._forget(request)

    def grow(self, request: RequestId, tokens: int) -> None:
        """Hold `tokens` more, whether or not they fit."""
        if tokens < 0:
            raise ValueError(f"r{request} cannot grow by {tokens} tokens: KV shrinks by eviction")
        self._hold(request, self._request(request).held_tokens + tokens)

    def try_grow(self, request: RequestId, tokens: int) -> bool:
        """Hold `tokens` more if every promise can still be kept; False changes nothing."""
        before = self._request(request).held_tokens
        self.grow(request, tokens)
        if self._is_sound:
            return True
        self._hold(request, before)
        return False

    def evict(self, request: RequestId) -> None:
        """Drop KV and promise; what it had lent stays lent, by an empty estate."""
        if self._request(request).borrowers:
            self._leave_estate(request)
        self._hold(request, 0)
        self.reserve(request, None)

    def reserve(self, request: RequestId, promise: Reservation | None) -> None:
        """Replace the promise, whether or not it fits.

        ValueError for negative sizes, a loan without a lender, a lender that is unknown or of
        another service, and loans in a circle. An estate nobody borrows from any more goes.
        """
        if promise is not None:
            self._refuse_impossible(request, promise)
        account = self._writable(request)
        old_lender = account.lender
        if old_lender is not None:
            self._link(request, old_lender, account, -1)
        self._free_bytes += account.committed_blocks * self._block_bytes[account.service]
        account.promise_it(promise, self.block_tokens)
        self._free_bytes -= account.committed_blocks * self._block_bytes[account.service]
        if account.lender is not None:
            self._link(request, account.lender, account, 1)
        self._note_strain(request, account)
        if old_lender is not None and old_lender < 0 and not self._account(old_lender).borrowers:
            self.reserve(old_lender, None)
            self._forget(old_lender)

    def try_reserve(self, request: RequestId, promise: Reservation | None) -> bool:
        """Replace the promise if every promise can still be kept; False changes nothing.

        ValueError as `reserve`.
        """
        trial = self.copy()
        trial.reserve(request, promise)
        if not trial._is_sound:
            return False
        for name, account in trial._accounts.items():
            if account is None:
                self._forget(name)
            else:
                self._accounts[name] = account
        self._adopt_sums(trial)
        self._changes += 1
        return True

    def blocks(self, tokens: int) -> int:
        """Whole blocks that hold `tokens`."""
        return -(-tokens // self.block_tokens)

    def holding(self, request: RequestId) -> int:
        """Tokens of KV the request holds."""
        return self._request(request).held_tokens

    def held_blocks(self, request: RequestId) -> int:
        """Blocks of KV the request holds."""
        return self._request(request).held_blocks

    def reservation(self, request: RequestId) -> Reservation | None:
        """What was promised to the request; its lender may have become an estate."""
        return self._request(request).promise

    def borrowers(self, request: RequestId) -> frozenset[RequestId]:
        """Those whose loans lie in the request's space."""
        return self._request(request).borrowers

    def held_tokens(self, service: ServiceId) -> int:
        """Tokens of KV all requests of a service hold."""
        return self._held_tokens[service]

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
            found += self._account(name).strains(name)
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
            if account != self._account(name):
                found.append(f"r{name} is kept as {self._account(name)} but is {account}")
        if free != self._free_bytes:
            found.append(f"free space is kept as {self._free_bytes} bytes but is {free}")
        for service, kept in self._held_tokens.items():
            held = sum(a.held_tokens for a in true.values() if a.service == service)
            if held != kept:
                found.append(f"{service} is kept as holding {kept} tokens but holds {held}")
        return found

    @property
    def _is_sound(self) -> bool:
        return self._free_bytes >= 0 and not self._strained

    def _over_capacity(self, free_bytes: int) -> str:
        return f"{-free_bytes} bytes over the KV capacity of {self.capacity_bytes}"

    def _find(self, request: RequestId) -> _Account | None:
        ledger = self
        while request not in ledger._accounts:
            parent = ledger._parent
            if parent is None:
                return None
            if parent._changes != ledger._parent_changes:
                raise RuntimeError("the ledger changed since this copy was made")
            ledger = parent
        return ledger._accounts[request]

    def _account(self, name: RequestId) -> _Account:
        account = self._find(name)
        if account is None:
            raise ValueError(f"r{name} has no KV account here")
        return account

    def _request(self, request: RequestId) -> _Account:
        if request < 0:
            raise ValueError(f"r{request} is an estate, not a request")
        return self._account(request)

    def _writable(self, name: RequestId) -> _Account:
        self._changes += 1
        account = self._accounts.get(name)
        if account is None:
            account = self._account(name)
            account = self._accounts[name] = replace(account)
        return account

    def _forget(self, name: RequestId) -> None:
        self._changes += 1
        self._strained.discard(name)
        self._accounts[name] = None
        if self._parent is None:
            del self._accounts[name]

    def _adopt_sums(self, other: "KvLedger") -> None:
        self._held_tokens = other._held_tokens.copy()
        self._free_bytes = other._free_bytes
        self._strained = other._strained.copy()
        self._estates = other._estates

    def _hold(self, request: RequestId, tokens: int) -> None:
        account = self._writable(request)
        self._held_tokens[account.service] += tokens - account.held_tokens
        account.held_tokens = tokens
        rise = self.blocks(tokens) - account.held_blocks
        if rise == 0:
            return
        committed, overflow = account.committed_blocks, account.overflow_blocks
        account.held_blocks += rise
        account.used_blocks += rise
        taken = account.committed_blocks - committed
        self._free_bytes -= taken * self._block_bytes[account.service]
        self._note_strain(request, account)
        self._burden(account.lender, account.overflow_blocks - overflow, 0)

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
        lender = self._find(promise.lender)
        if lender is None:
            raise ValueError(f"r{request} borrows from r{promise.lender}, which is not here")
        service = self._account(request).service
        if lender.service != service:
            whom = f"r{promise.lender} of {lender.service}"
            raise ValueError(f"r{request} of {service} borrows from {whom}")
        above: RequestId | None = promise.lender
        while above is not None:
            if above == request:
                raise ValueError(f"r{request} borrows from r{promise.lender} in a circle")
            above = self._account(above).lender

    def _leave_estate(self, request: RequestId) -> None:
        """Put an empty account in the request's place towards its borrowers and its lender.

        Turning the loans into the borrowers' own overflow instead would break the promise of a
        lender that itself borrowed.
        """
        account = self._account(request)
        self._estates += 1
        estate = RequestId(-self._estates)
        self._accounts[estate] = _Account(account.service)
        promise = account.promise
        if promise is not None and promise.lender is None:
            lent_tokens = account.lent_blocks * self.block_tokens
            promise = replace(promise, own_tokens=min(promise.own_tokens, lent_tokens))
        for borrower in sorted(account.borrowers):
            loan = self._account(borrower).promise
            assert loan is not None  # a borrower is one by its promise
            self.reserve(borrower, replace(loan, lender=estate))
        self.reserve(estate, promise)

    def _visible(self) -> dict[RequestId, _Account]:
        """Every account as this ledger sees it."""
        seen = self._parent._visible() if self._parent is not None else {}
        for name, account in self._accounts.items():
            if account is None:
                seen.pop(name, None)
            else:
                seen[name] = account
        return seen

    def _recomputed(self) -> dict[RequestId, _Account]:
        """The accounts with all sums computed anew, borrowers before their lenders."""
        true = {}
        for name, account in self._visible().items():
            blocks = self.blocks(account.held_tokens)
            true[name] = _Account(account.service, account.held_tokens, blocks, used_blocks=blocks)
            true[name].promise_it(account.promise, self.block_tokens)
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
