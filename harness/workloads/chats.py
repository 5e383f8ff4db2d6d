"""Requests to one model as people chat with it: measured lengths, a process of arrivals."""

from collections.abc import Mapping

import numpy as np

from harness.costs.model_facts import model_facts
from harness.workloads.arrivals import Arrivals, think_s_of
from harness.workloads.lengths import Lengths
from harness.workloads.settings import require_positive, require_start
from harness.workloads.workload import Workload, services_of


class Chats:
    """`requests` requests to one model."""

    def __init__(
        self,
        *,
        model: str,
        requests: int,
        arrivals: Arrivals,
        lengths: Lengths,
        max_output_tokens: int,
        starts_s: float,
    ) -> None:
        """Each may answer up to `max_output_tokens`; longer answers end there.

        Arrivals begin at `starts_s`. A prompt that leaves no room for so many in the model's
        context keeps its last tokens. Raises ValueError where that leaves none.
        """
        self._facts = model_facts(model)
        require_positive("workload", requests=requests, max_output_tokens=max_output_tokens)
        self._room_tokens = self._facts.max_context_tokens - max_output_tokens
        if self._room_tokens < 1:
            raise ValueError(
                f"answers of {max_output_tokens} tokens leave no prompt in the context of {model}, "
                f"{self._facts.max_context_tokens}"
            )
        self._requests, self._max_output_tokens = requests, max_output_tokens
        self._starts_s = require_start(starts_s)
        self._arrivals, self._lengths = arrivals, lengths
        self.models = (model,)
        self.files: Mapping[str, str] = {**arrivals.files, **lengths.files}

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; lengths do not depend on the arrivals."""
        count = self._requests
        prompts, outputs, gaps = (np.random.default_rng([seed, 6, part]) for part in range(3))
        drawn = self._lengths.draw(count, prompts, outputs)
        return Workload(
            services=services_of([self._facts]),
            service=np.zeros(count, np.int64),
            arrival_s=self._arrivals.draw(count, gaps),
            prompt_tokens=np.minimum(drawn.prompt_tokens, self._room_tokens),
            output_tokens=np.minimum(drawn.output_tokens, self._max_output_tokens),
            max_output_tokens=np.full(count, self._max_output_tokens),
            app=np.arange(count),
            deadline_s=np.full(count, np.nan),
            datasets=self.files,
            think_s=think_s_of(self._arrivals),
        ).later(self._starts_s)
