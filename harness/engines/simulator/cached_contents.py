"""Adapters or contexts in host memory: what stepped groups and decisions do with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.engines.simulator.kernel import host_cache
from harness.engines.simulator.kernel.host_cache import CACHE, CONTENT, NOT_WANTED, HeldRecords
from harness.engines.state import Ints
from harness.interface.apps import Apps, HostCache
from harness.interface.entities import RequestId, ResourceId, Work

FOUND = ("", "warm", "loading", "cold")
"""How a call has found its content, by the numbers of `HeldRecords.found`."""

NEEDS_WHOLE_PROMPTS = (
    "adapters and contexts in host memory need batches of whole prompts without padding, in groups "
    "of one service: policy.rule.chunked_prefill=false"
)


@dataclass(slots=True)
class CachedContents:
    """The cache of a run. `held` are its arrays, which compiled groups share."""

    facts: HostCache
    app: Ints
    held: HeldRecords

    @classmethod
    def of(cls, apps: Apps, app: Ints) -> "CachedContents | None":
        """That of these applications, with all contents on disk alone; None without a cache."""
        facts = apps.host_cache
        if facts is None:
            return None
        cache, contents = np.zeros(1, CACHE), np.zeros(len(facts.names), CONTENT)
        for name in ("capacity", "load_s", "copy_s", "grows"):
            cache[name] = getattr(facts, name)
        contents["size"], contents["ready_s"] = facts.size, np.inf
        contents["used_s"], contents["wanted"] = -np.inf, NOT_WANTED
        count = len(app)
        held = HeldRecords(
            cache=cache,
            contents=contents,
            content=np.where(apps.outside, -1, facts.content[app]),
            reads=facts.reads,
            found=np.zeros(count, np.int64),
            waited_s=np.zeros(count),
        )
        return cls(facts, app, held)

    def read(
        self, prompts: Mapping[RequestId, int], work: Work, now_s: float
    ) -> tuple[Work, float]:
        """Calls begin with whole prompts of so many tokens.

        Returns the work less what is cached, and seconds until all have what they read.
        """
        tokens, attended, read_s = work.prefill_tokens, work.prefill_attended, 0.0
        for request, prompt_tokens in prompts.items():
            found_tokens, seconds = host_cache.read(self.held, request, now_s, read_s)
            spared = min(int(found_tokens), prompt_tokens - 1)
            tokens, attended, read_s = tokens - spared, attended - spared**2, read_s + seconds
        less = replace(
            work, prefill_tokens=tokens, prefill_padded_tokens=tokens, prefill_attended=attended
        )
        return less, read_s

    def store(self, request: int, context_tokens: int, now_s: float) -> None:
        """A call is answered: its context is kept."""
        host_cache.store(self.held, request, context_tokens, now_s)

    def want(
        self, names: Sequence[ResourceId], queue: Ints, now_s: float, contexts_share: float = 1.0
    ) -> tuple[ResourceId, float] | None:
        """Rank contents as wanted, most first: by name, then those that calls of a queue read.

        Returns the one that begins to load, and when that ends. One is loaded at a time, of
        contexts those that fit in a share of host memory. ValueError for a name that is no content.
        """
        places = {name: place for place, name in enumerate(self.facts.names)}
        for name in names:
            if name not in places:
                raise ValueError(f"a policy wants {name}, which no call of this workload reads")
        ranked = [*(places[name] for name in names), *self.held.content[queue].tolist()]
        order = np.array(list(dict.fromkeys(ranked)), np.int64)
        share = contexts_share if self.facts.grows else 1.0
        place = int(host_cache.want(self.held, order, now_s, share))
        if place < 0:
            return None
        return self.facts.names[place], float(self.held.contents["ready_s"][place])

    def frame(self) -> pd.DataFrame:
        """One row per call that has read something, as `Backends.frame` has them."""
        calls = np.flatnonzero(self.held.found)
        is_found = self.facts.grows & (self.held.found[calls] == host_cache.WARM)
        return pd.DataFrame(
            {
                "backend": "context" if self.facts.grows else "adapter",
                "resource": [self.facts.names[it] for it in self.held.content[calls].tolist()],
                "app": self.app[calls],
                "request": calls,
                "found": [FOUND[number] for number in self.held.found[calls].tolist()],
                "waited_s": self.held.waited_s[calls],
                "idle_s": 0.0,
                "tokens": np.where(is_found, self.held.reads[calls], 0),
            }
        )
