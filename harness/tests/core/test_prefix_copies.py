"""Copies of a ledger with a prefix cache: none follows another, in whatever order they are used."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.core import prefix_ledger
from harness.core.ledger_problems import problems
from harness.core.prefix_ledger import PrefixLedger
from harness.interface.entities import AppId, Request, RequestId, Service, ServiceId, TenantId

BLOCK_TOKENS, BLOCKS, REQUESTS = 4, 24, 12
Change = Callable[[PrefixLedger], object]


def _request(name: RequestId) -> Request:
    return Request(name, ServiceId("a"), AppId(0), TenantId("a"), 0.0, 20, 9)


def _ledger() -> PrefixLedger:
    """Requests of which each third begins alike, none of which holds KV."""
    service = Service(ServiceId("a"), kv_bytes_per_token=1, max_context_tokens=64)
    kv = PrefixLedger(
        capacity_bytes=BLOCKS * BLOCK_TOKENS,
        services={service.id: service},
        block_tokens=BLOCK_TOKENS,
        contents=lambda request, number: (request % 3 if number < 3 else request, number),
    )
    for name in range(REQUESTS):
        kv.open(_request(RequestId(name)))
    return kv


def _open_again(kv: PrefixLedger, name: RequestId) -> None:
    kv.close(name)
    kv.open(_request(name))


def _change(rng: np.random.Generator) -> Change:
    name, tokens = RequestId(int(rng.integers(REQUESTS))), int(rng.integers(1, 9))
    what = rng.random()
    if what < 0.3:
        return lambda kv: kv.free(name)
    if what < 0.4:
        return lambda kv: _open_again(kv, name)
    return lambda kv: kv.try_grow(name, tokens)


def _seen(kv: PrefixLedger) -> object:
    names = [RequestId(name) for name in range(REQUESTS)]
    return (
        dict(kv.holders),
        [kv.cached_tokens(name) for name in names],
        [0 if kv.holding(name) else kv.newcomer_blocks(name, 20) for name in names],
        kv.free_blocks(ServiceId("a")),
        kv.shared_tokens,
        problems(kv),
    )


@pytest.mark.parametrize("most_stale", [0, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_every_copy_is_as_if_it_had_been_made_alone(
    seed: int, most_stale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_ledger, "MOST_STALE", most_stale)
    rng = np.random.default_rng(seed)
    ledgers: list[tuple[PrefixLedger, list[Change]]] = [(_ledger(), [])]
    for _ in range(250):
        place = int(rng.integers(len(ledgers)))
        kv, changes = ledgers[place]
        what = rng.random()
        if what < 0.2:
            ledgers.append((kv.copy(), list(changes)))
        elif what < 0.35 and len(ledgers) > 1:
            del ledgers[place]
        elif what < 0.9:
            change = _change(rng)
            change(kv)
            changes.append(change)
        else:
            alone = _ledger()
            for change in changes:
                change(alone)
            assert _seen(kv) == _seen(alone)
        del kv


def test_an_emptied_ledger_has_blocks_of_its_own_and_nothing_cached() -> None:
    kv = _ledger()
    kv.grow(RequestId(0), 12)
    twin = kv.emptied()
    twin.open(_request(RequestId(3)))
    assert kv.cached_tokens(RequestId(3)) == 12
    assert twin.cached_tokens(RequestId(3)) == 0
    assert twin._blocks is not kv._blocks
