"""What a policy sees of one request that another engine holds."""

from typing import Protocol

from harness.core.kv_ledger import ledger_of
from harness.interface.decisions import Reservation
from harness.interface.entities import LengthPrediction, Request
from harness.interface.views import GroupView


class EngineRequest(Protocol):
    """What is read of the engine's own request, in tokens."""

    @property
    def num_tokens(self) -> int:
        """Prompt and generated."""

    @property
    def num_computed_tokens(self) -> int:
        """Those with KV."""


class ServedRequest:
    """One unfinished request. `gpu_s` is the GPU time attained."""

    __slots__ = ("_group", "_request", "facts", "gpu_s", "predicted")

    def __init__(self, facts: Request, request: EngineRequest, group: GroupView) -> None:
        """A view of the engine's request."""
        self.facts = facts
        self.predicted: LengthPrediction | None = None
        self.gpu_s = 0.0
        self._request = request
        self._group = group

    @property
    def context_tokens(self) -> int:
        """Prompt plus generated so far."""
        return self._request.num_tokens

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far."""
        return self._request.num_tokens - self.facts.prompt_tokens

    @property
    def kv_tokens(self) -> int:
        """Tokens with KV on the GPU."""
        return self._request.num_computed_tokens

    @property
    def swapped_tokens(self) -> int:
        """None: preempted KV is dropped."""
        return 0

    @property
    def reservation(self) -> Reservation | None:
        """KV promised to it."""
        return ledger_of(self._group).reservation(self.facts.id)

    @property
    def is_running(self) -> bool:
        """Never: policies are asked between iterations."""
        return False
