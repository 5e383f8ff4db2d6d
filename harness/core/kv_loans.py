"""Accounts of those with promised or lent KV, in whole blocks: the sums that a ledger checks.

With b over the borrowers of x, every promise can be kept while, for each x that lends or borrows,

    used(x) = held(x) + sum of max(0, used(b) - own(b))  <=  own(x) + loan(x)
    lent(x) = sum of loan(b)                             <=  own(x) + loan(x)

and the committed bytes of all fit the capacity, which is the ledger's to see to.
"""

from collections.abc import Mapping
from typing import NamedTuple

from harness.interface.decisions import Reservation
from harness.interface.entities import RequestId, ServiceId


class Account(NamedTuple):
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
        """Taken from the free space; what a borrower holds beyond its own is in its lender's."""
        if self.promise is None:
            return self.held_blocks
        if self.promise.lender is not None:
            return self.own_blocks
        return max(self.own_blocks, self.held_blocks)

    @property
    def is_linked(self) -> bool:
        """Whether it lends or borrows."""
        promise = self.promise
        return bool(self.borrowers) or (promise is not None and promise.lender is not None)

    @property
    def overflow_blocks(self) -> int:
        """Used of the lender's space."""
        return 0 if self.lender is None else max(0, self.used_blocks - self.own_blocks)

    def promised(self, promise: Reservation | None, block_tokens: int) -> "Account":
        """The same with this promise in whole blocks; the loan's are those beyond the own ones."""
        own, region = (promise.own_tokens, promise.tokens) if promise else (0, 0)
        own_blocks = -(-own // block_tokens)
        loan_blocks = -(-region // block_tokens) - own_blocks
        return self._replace(promise=promise, own_blocks=own_blocks, loan_blocks=loan_blocks)

    def broken_rules(self, name: RequestId) -> list[str]:
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


# Stands for the account of a request without one.
_PLAIN = Account(ServiceId(""))


class Loans:
    """The accounts and promises of one ledger, by request, and which accounts break a rule.

    The sums are kept up to date, so that a change costs the length of the loan chain above it.
    """

    def __init__(self) -> None:
        """No accounts."""
        self.accounts: dict[RequestId, Account] = {}
        self.promises: dict[RequestId, Reservation] = {}
        self.overdrawn: set[RequestId] = set()
        self.count = 0  # of those who borrow; without any no rule can be broken

    def copy(self) -> "Loans":
        """Equal accounts; from then on neither follows the other."""
        twin = Loans()
        twin.accounts = self.accounts.copy()
        twin.promises = self.promises.copy()
        twin.overdrawn = self.overdrawn.copy()
        twin.count = self.count
        return twin

    def of(self, name: RequestId) -> Account:
        """Its account, to read; an empty one where it has none."""
        return self.accounts.get(name, _PLAIN)

    def hold(self, name: RequestId, blocks: int) -> int:
        """Count blocks that it has come to hold, or given back (negative).

        Returns how many of them come from the free space.
        """
        account = self.accounts[name]
        self.accounts[name] = account._replace(held_blocks=account.held_blocks + blocks)
        self._pass_up(name, blocks, 0)
        return self.accounts[name].committed_blocks - account.committed_blocks

    def promise(self, name: RequestId, promise: Reservation | None, block_tokens: int) -> int:
        """Replace a promise; its lender must have an account.

        Returns how many blocks more come from the free space.
        """
        before = self.accounts[name]
        account = self.accounts[name] = before.promised(promise, block_tokens)
        if before.lender is not None:
            self._link(name, before.lender, before, -1)
        if promise is None:
            self.promises.pop(name, None)
        else:
            self.promises[name] = promise
        if account.lender is not None:
            self._link(name, account.lender, account, 1)
        self._note(name)
        return account.committed_blocks - before.committed_blocks

    def broken_rules(self) -> list[str]:
        """One sentence per loan rule that an account breaks."""
        return [
            rule for name in sorted(self.overdrawn) for rule in self.of(name).broken_rules(name)
        ]

    def refuse_impossible(
        self, request: RequestId, promise: Reservation, services: Mapping[RequestId, ServiceId]
    ) -> None:
        """Raise ValueError for a promise that nothing could make good; see `KvLedger.reserve`."""
        if promise.own_tokens < 0 or promise.loan_tokens < 0:
            sizes = f"{promise.own_tokens} own and {promise.loan_tokens} lent tokens"
            raise ValueError(f"r{request} cannot be promised {sizes}")
        if promise.lender is None:
            if promise.loan_tokens:
                raise ValueError(
                    f"r{request} borrows {promise.loan_tokens} tokens without a lender"
                )
            return
        service, of_lender = services[request], services.get(promise.lender)
        if of_lender is None:
            raise ValueError(f"r{request} borrows from r{promise.lender}, which is not here")
        if of_lender != service:
            lender = f"r{promise.lender} of {of_lender}"
            raise ValueError(f"r{request} of {service} borrows from {lender}")
        above: RequestId | None = promise.lender
        while above is not None and above != request:
            above = self.of(above).lender
        if above is not None:
            raise ValueError(f"r{request} borrows from r{promise.lender} in a circle")

    def _link(self, name: RequestId, lender: RequestId, account: Account, sign: int) -> None:
        """Put a loan on its lender (sign 1) or take it off (sign -1)."""
        self.count += sign
        lending = self.accounts[lender]
        self.accounts[lender] = lending._replace(borrowers=lending.borrowers ^ {name})
        self._pass_up(lender, sign * account.overflow_blocks, sign * account.loan_blocks)
        # Without blocks nothing is passed up, but a lender has rules to keep.
        self._note(lender)

    def _pass_up(self, name: RequestId | None, used_blocks: int, lent_blocks: int) -> None:
        """Add to what is used and lent there, and above it as far up the chain as it is felt."""
        while name is not None and (used_blocks or lent_blocks):
            before = self.accounts[name]
            account = self.accounts[name] = before._replace(
                used_blocks=before.used_blocks + used_blocks,
                lent_blocks=before.lent_blocks + lent_blocks,
            )
            self._note(name)
            used_blocks, lent_blocks = account.overflow_blocks - before.overflow_blocks, 0
            name = account.lender

    def _note(self, name: RequestId) -> None:
        is_broken = self.accounts[name].broken_rules(name)
        (self.overdrawn.add if is_broken else self.overdrawn.discard)(name)
