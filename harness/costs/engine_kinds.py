"""Kinds of engines: what each adds to the kernels of an iteration, as named terms with sources.

A file of profiles/engines is one kind. `profile` kinds have the costs of a profile folder, and its
roofline, as they were measured; `kernels` kinds add their terms to the kernels of today's GPUs.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from pydantic import Field, model_validator

from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, one_of, read_json

ENGINES = PROFILES / "engines"
PROFILE_ENGINE = "vllm-0.3-eager"
"""The kind whose costs are those of a folder of profiles and of its roofline."""
SERVER = "vllm-async"
"""The kind of a server of today."""
OWN_LOAD = "harness.workloads.recorded.Trace"

UNITS = {
    "layer_s": "s per layer and iteration",
    "head_norm_s": "s per layer and iteration, of models with norms across the heads of a group",
    "iteration_s": "s per iteration",
    "running_s": "s per running request and iteration",
    "any_prompt_s": "s per iteration with prompts",
    "prompt_s": "s per prompt, or part of one, in an iteration",
    "prompt_kernels": "factor on matrix products of iterations with prompts",
    "intake_s": "s per request, before it can be scheduled",
    "intake_token_s": "s per prompt token, before the request can be scheduled",
    "received_s": "s per request, between two iterations: nothing is computed meanwhile",
}
"""Every term that a kind may have."""


class Term(Schema):
    """A number with its unit, what takes the time, and where the number comes from."""

    value: NotNegative
    unit: str
    mechanism: str
    data: str


class EngineKind(Schema):
    """What an engine adds to kernels, and its limits unless a run gives others.

    `version` is the release of vLLM whose rules leave the memory for KV. `checked` says what its
    seconds were compared with where these are no measured servers, and `error` how far they were
    off, as a profile has it.
    """

    name: str
    about: str
    costs: Annotated[str, one_of("profile", "kernels")]
    terms: Mapping[str, Term] = Field(default_factory=dict)
    version: tuple[int, int] = (0, 32)
    checked: str = ""
    error: Mapping[str, NotNegative] = Field(default_factory=dict)
    max_num_batched_tokens: Count = 8192
    max_num_seqs: Count = 1024

    @model_validator(mode="after")
    def _has_known_terms(self) -> "EngineKind":
        for name, term in self.terms.items():
            if name not in UNITS or term.unit != UNITS[name]:
                raise ValueError(f"terms.{name} in {term.unit!r:.60} is not one of {UNITS}")
        return self

    def value(self, term: str) -> float:
        """Of a term; nothing of a factor is 1, of seconds 0."""
        if term in self.terms:
            return self.terms[term].value
        return 1.0 if term == "prompt_kernels" else 0.0

    def with_values(self, values: Mapping[str, float]) -> "EngineKind":
        """The same with other numbers."""
        terms = {
            name: self.terms[name].model_copy(update={"value": value})
            if name in self.terms
            else Term(value=value, unit=UNITS[name], mechanism="", data="")
            for name, value in values.items()
        }
        return self.model_copy(update={"terms": {**self.terms, **terms}})


@cache
def engine_kind(name: str) -> EngineKind:
    """A kind by its name. Raises ValueError for an unknown one and a bad file."""
    known = {path.stem: path for path in ENGINES.glob("*.json")}
    if name not in known:
        raise ValueError(unknown_name("engine", name, known))
    return read_json(known[name], EngineKind)


def engine_for(workload: str) -> str:
    """The kind of engine unless a run names one, by the class of its workload.

    Requests of a file are a user's own, for a server of today; papers measured older engines.
    """
    return SERVER if workload == OWN_LOAD else PROFILE_ENGINE
