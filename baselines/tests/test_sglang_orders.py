"""Orders by what is cached: the examples of SGLang's code, and whole runs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baselines.sglang_orders import CacheAware, DfsWeight, Hrrn, Lpm, WaitingQueue
from harness.core.prefix_ledger import PrefixLedger
from harness.interface.entities import AppId, Request, RequestId, Service, ServiceId, TenantId
from harness.interface.views import RequestView
from harness.tests.support.serving import FlatCosts, rule, serve, workload
from harness.workloads.prefixes import Prefixes
from harness.workloads.workload import Workload

A = Service(ServiceId("a"), kv_bytes_per_token=1, max_context_tokens=8192)
RULE = rule(chunked_prefill=True, max_num_seqs=1)
SORTS: dict[str, Any] = {"most_sorted": 128, "matched_tokens": 32, "shared_tokens": 32}
LPM: dict[str, Any] = {"rule": RULE, "aging_tokens_per_pass": 0} | SORTS


def lpm(**settings: Any) -> Lpm:
    """One slot, no aging."""
    return Lpm(**LPM | settings)


def of_contexts(
    *contexts: tuple[int, int, int], answered: int, generated: int = 0
) -> tuple[PrefixLedger, list[RequestView]]:
    """Each (prompt, the request it begins like, tokens of that); the first ones are cached.

    The others wait, and have generated so much before. Blocks of four.
    """
    prompts, prefix, tokens = map(list, zip(*contexts, strict=True))
    contents = Prefixes(prefix, tokens).contents(4)
    kv = PrefixLedger(capacity_bytes=2**20, services={A.id: A}, block_tokens=4, contents=contents)
    waiting: list[Any] = []
    for number, prompt in enumerate(prompts):
        name, is_answered = RequestId(number), number < answered
        facts = Request(name, A.id, AppId(0), TenantId("a"), 0.0, prompt, 9)
        kv.open(facts, 0 if is_answered else generated)
        if is_answered:
            kv.grow(name, prompt)
            kv.close(name)
        else:
            waiting.append(SimpleNamespace(facts=facts))
    return kv, waiting


def sorted_by(
    policy: CacheAware, kv: PrefixLedger, waiting: list[RequestView], queue: WaitingQueue
) -> list[int]:
    """Ids in order."""
    queue.join(waiting)
    return [request.facts.id for request in policy.order(kv, waiting, queue)]


def test_the_longest_cached_prefix_by_hand() -> None:
    """Requests 1 to 4 have 0, 500, 40 and 0 tokens cached; the last shares 64 with the first."""
    contexts = (600, -1, 0), (100, -1, 0), (520, 0, 500), (60, 0, 40), (100, 1, 64)
    waits = of_contexts(*contexts, answered=1)
    assert sorted_by(lpm(), *waits, WaitingQueue()) == [2, 3, 1, 4]
    # Nothing is put last where no match is short enough, or no shared beginning long enough.
    assert sorted_by(lpm(matched_tokens=-1), *waits, WaitingQueue()) == [2, 3, 1, 4]
    assert sorted_by(lpm(most_sorted=3), *waits, WaitingQueue()) == [1, 2, 3, 4]
    # Eight passes are 512 tokens.
    aged = WaitingQueue(passes={RequestId(1): 8, RequestId(4): 9})
    assert sorted_by(lpm(aging_tokens_per_pass=64), *waits, aged) == [1, 2, 3, 4]


def test_a_shared_beginning_that_is_not_cached_waits_by_hand() -> None:
    """Requests 0 and 1 share 64 tokens, 0 and 2 share 31, of which 28 are whole blocks."""
    waits = of_contexts((100, -1, 0), (100, 0, 64), (100, 0, 31), (100, -1, 0), answered=0)
    assert sorted_by(lpm(), *waits, WaitingQueue()) == [0, 2, 3, 1]
    assert sorted_by(lpm(shared_tokens=28), *waits, WaitingQueue()) == [0, 3, 1, 2]
    assert sorted_by(lpm(shared_tokens=65), *waits, WaitingQueue()) == [0, 1, 2, 3]
    assert sorted_by(lpm(matched_tokens=-1), *waits, WaitingQueue()) == [0, 1, 2, 3]


def test_the_highest_response_ratio_by_hand() -> None:
    """Requests 1 to 4 miss 100, 5, 4000 and 0 tokens, and have waited for 1000, 100, 1000, 1000."""
    contexts = (600, -1, 0), (100, -1, 0), (505, 0, 500), (4000, -1, 0), (8, 0, 8)
    joined = {RequestId(1): 0, RequestId(2): 900, RequestId(3): 0, RequestId(4): 0}
    waits = of_contexts(*contexts, answered=1, generated=1)
    queue = WaitingQueue(computed_tokens=1000, joined_tokens=joined)
    assert sorted_by(Hrrn(rule=RULE, **SORTS), *waits, queue) == [4, 2, 1, 3]
    # The test of its program.
    kv, waiting = of_contexts((1, -1, 0), (10, -1, 0), (3, -1, 0), answered=0)
    queue = WaitingQueue(
        computed_tokens=1000, joined_tokens=dict.fromkeys(map(RequestId, range(3)), 0)
    )
    assert sorted_by(Hrrn(rule=RULE, **SORTS), kv, waiting, queue) == [0, 2, 1]


def test_the_heaviest_subtree_by_hand() -> None:
    """Requests 4 and 5 match 16 tokens of request 0 and 6 matches 32, 3 matches 16 of request 1.

    Three wait in the subtree of 0, where the deeper one comes first, then 3, then 2 without match.
    """
    answered = (40, -1, 0), (40, -1, 0)
    waiting = (30, -1, 0), (30, 1, 16), (30, 0, 16), (30, 0, 16), (40, 0, 32)
    waits = of_contexts(*answered, *waiting, answered=2)
    assert sorted_by(DfsWeight(rule=RULE), *waits, WaitingQueue()) == [6, 4, 5, 3, 2]


def alike(outputs: list[int], arrivals_s: list[float]) -> Workload:
    """Three prompts of 40 tokens, of which the third begins with 32 of the first."""
    prefix, tokens = np.array([-1, -1, 0]), np.array([0, 0, 32])
    return replace(workload([40] * 3, outputs, arrivals_s), prefix=prefix, prefix_tokens=tokens)


def finished_s(policy: CacheAware, load: Workload, *, caches: bool = True) -> list[float]:
    """Half a second a prefill, a quarter a decode."""
    served = serve(load, policy, costs=FlatCosts(load=0.0), prefix_caching=caches)
    found: list[float] = served.requests["finished_s"].tolist()
    return found


@pytest.mark.parametrize("policy", [lpm(), DfsWeight(rule=RULE)])
def test_a_cached_prefix_overtakes_by_hand(policy: CacheAware) -> None:
    load = alike([2, 2, 2], [0.0, 0.1, 0.1])
    assert finished_s(policy, load) == [0.75, 2.25, 1.5]
    assert finished_s(policy, load, caches=False) == [0.75, 1.5, 2.25]


def test_passes_of_waiting_count_by_hand() -> None:
    """The first request leaves the second waiting at 0.5, 0.75, 1 and 1.25, the third at 1.25."""
    load = alike([5, 1, 1], [0.0, 0.1, 1.1])
    assert finished_s(lpm(aging_tokens_per_pass=10), load) == [1.5, 2.5, 2.0]
    assert finished_s(lpm(aging_tokens_per_pass=11), load) == [1.5, 2.0, 2.5]


def test_ratios_grow_with_the_tokens_computed_by_hand() -> None:
    """At 1.0 the ratios of requests 2, 3 and 4 are 100/200, 100/50 and 0; at 1.5 150/200 and 50/10.

    At 0.5 that of all three which are there is 0.
    """
    load = workload([40, 100, 200, 50, 10], [1] * 5, [0.0, 0.1, 0.1, 0.1, 0.6])
    policy = Hrrn(rule=RULE, **SORTS)
    assert finished_s(policy, load) == [0.5, 1.0, 2.5, 1.5, 2.0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"aging_tokens_per_pass": -1}, "policy.aging_tokens_per_pass is -1, it must be at least"),
        ({"most_sorted": -1}, "policy.most_sorted is -1, it must be at least 0"),
        ({"matched_tokens": -2}, "policy.matched_tokens is -2, it must be at least -1"),
        ({"shared_tokens": 0}, "policy.shared_tokens is 0, it must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        lpm(**settings)
