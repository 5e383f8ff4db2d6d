"""What is wrong with a ledger, added up anew from what its requests hold and were promised."""

from collections import Counter
from collections.abc import Mapping

from harness.core.kv_ledger import KvLedger
from harness.core.kv_loans import Account
from harness.core.prefix_ledger import PrefixLedger
from harness.interface.decisions import Reservation
from harness.interface.entities import RequestId, ServiceId


def problems(kv: KvLedger) -> list[str]:
    """Empty when every promise can be kept, and every running sum is the true one."""
    return _of_prefixes(kv) if isinstance(kv, PrefixLedger) else _of_promises(kv)


def _of_promises(kv: KvLedger) -> list[str]:
    held = {n: kv.blocks(tokens, kv._services[n]) for n, tokens in kv._held.items()}
    promises = {name: account.promise for name, account in kv._loans.accounts.items()}
    true = _summed_anew(kv._services, held, promises, kv._block_tokens)
    taken = (a.committed_blocks * kv.block_bytes(a.service) for a in true.values())
    found = _of_free_space(kv, sum(taken))
    for name, account in sorted(true.items()):
        found += account.broken_rules(name)
        kept = kv._loans.accounts.get(name, account)
        if kept != account:
            found.append(f"r{name} is kept as {kept} but is {account}")
    return found


def _of_prefixes(kv: PrefixLedger) -> list[str]:
    blocks = kv._read()
    users = Counter(block for table in blocks.tables.values() for block in table)
    partial = sum(held % kv.block_tokens > 0 for held in kv._held.values())
    found = _of_free_space(kv, (len(users) + partial) * kv.block_bytes(kv._service_id))
    wrong = [block for block, count in users.items() if blocks.users.get(block) != count]
    found += [f"block {b} is kept as held {blocks.users.get(b)} times" for b in wrong]
    unused = {block for named in blocks.named.values() for block in named} - users.keys()
    if unused != blocks.unused.keys():
        found.append(f"{len(blocks.unused)} blocks are kept as unused but {len(unused)} are")
    return found


def _of_free_space(kv: KvLedger, taken_bytes: int) -> list[str]:
    free = kv.capacity_bytes - taken_bytes
    found = [kv._over_capacity(free)] if free < 0 else []
    if free != kv._free_bytes:
        found.append(f"free space is kept as {kv._free_bytes} bytes but is {free}")
    return found


def _summed_anew(
    services: Mapping[RequestId, ServiceId],
    held_blocks: Mapping[RequestId, int],
    promises: Mapping[RequestId, Reservation | None],
    block_tokens: Mapping[ServiceId, int],
) -> dict[RequestId, Account]:
    """Accounts of all requests from holdings and promises alone, borrowers before lenders."""
    true = {}
    for name, service in services.items():
        blocks = held_blocks.get(name, 0)
        account = Account(service, blocks, used_blocks=blocks)
        true[name] = account.promised(promises.get(name), block_tokens[service])
    for name, account in true.items():
        if account.lender is not None:
            lender = true[account.lender]
            true[account.lender] = lender._replace(borrowers=lender.borrowers | {name})
    waiting = {name: len(account.borrowers) for name, account in true.items()}
    ready = [name for name, count in waiting.items() if count == 0]
    for name in ready:
        account = true[name]
        if account.lender is not None:
            lender = true[account.lender]
            true[account.lender] = lender._replace(
                used_blocks=lender.used_blocks + account.overflow_blocks,
                lent_blocks=lender.lent_blocks + account.loan_blocks,
            )
            waiting[account.lender] -= 1
            if waiting[account.lender] == 0:
                ready.append(account.lender)
    return true
