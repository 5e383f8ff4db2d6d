"""Recorded runs of applications: what profiling them has shown, before a run starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.interface.apps import Backend


@dataclass(frozen=True, slots=True)
class UnitRun:
    """One run of a functional unit: its calls, or the seconds that it took outside any LLM.

    Raises ValueError for calls without a token, and for neither calls nor seconds.
    """

    unit: str
    prompt_tokens: tuple[int, ...] = ()
    output_tokens: tuple[int, ...] = ()
    external_s: float = 0.0

    def __post_init__(self) -> None:
        prompts, outputs = len(self.prompt_tokens), len(self.output_tokens)
        if prompts != outputs:
            raise ValueError(f"unit {self.unit} has {prompts} prompts and {outputs} answers")
        if self.prompt_tokens and min(*self.prompt_tokens, *self.output_tokens) < 1:
            raise ValueError(f"unit {self.unit} has a call of 0 tokens")
        if not 0 <= self.external_s < float("inf"):
            raise ValueError(f"unit {self.unit} took {self.external_s} s, at least 0 is allowed")
        if not self.prompt_tokens and not self.external_s:
            raise ValueError(f"unit {self.unit} has neither calls nor seconds")


@dataclass(frozen=True, slots=True)
class ApplicationHistory:
    """Runs of each kind of application, oldest first: the units of a run in the order they started.

    `backends` has what units outside any LLM run on, by kind and unit. Raises ValueError for a kind
    without runs and for a run without units.
    """

    runs: Mapping[str, Sequence[Sequence[UnitRun]]]
    backends: Mapping[str, Mapping[str, Backend]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, runs in self.runs.items():
            if not runs:
                raise ValueError(f"applications of kind {kind} have no recorded run")
            for number, run in enumerate(runs):
                if not run:
                    raise ValueError(f"run {number} of applications of kind {kind} has no units")
