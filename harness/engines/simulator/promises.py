"""What steady decisions say of the iteration after their prompts: that it need not be asked for."""

from dataclasses import dataclass, field, replace

from harness.engines.simulator.group import LiveGroup
from harness.interface.decisions import Decision
from harness.interface.entities import RequestId


@dataclass(slots=True)
class Promises:
    """By `id` of its live group, what follows a batch of whole prompts if nothing happens."""

    _next: dict[int, Decision] = field(default_factory=dict)

    def note(self, live: LiveGroup, decision: Decision, prompts: list[RequestId]) -> None:
        """Keep what a steady decision means next; a prompt that is cut must be asked about."""
        (batch,) = decision.launch
        views = [live.members[request] for request in prompts]
        if any(v.context_tokens - v.kv_tokens > batch.tokens[v.facts.id] for v in views):
            return
        decodes = replace(batch, tokens=dict.fromkeys(batch.tokens, 1))
        left = None if decision.at_most is None else decision.at_most - 1
        if left != 0:
            self._next[id(live)] = Decision(
                launch=(decodes,), wake_s=decision.wake_s, steady=True, at_most=left
            )

    def end(self, live: LiveGroup) -> None:
        """Something has happened to a group."""
        self._next.pop(id(live), None)

    def take(self, live: LiveGroup) -> Decision | None:
        """What goes on in a group, once; None where it must be asked, also if KV is short."""
        decision = self._next.pop(id(live), None)
        if decision is None or not live.kv.fits(decision.launch[0].tokens):
            return None
        return decision
