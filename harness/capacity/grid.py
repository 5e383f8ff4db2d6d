"""Settings of a deployment that are tried, each at several numbers of replicas."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A setting but for its replicas: the GPUs of one and how it serves.

    `max_num_batched_tokens` and `max_num_seqs` are limits of an iteration; `policy` and `dispatch`
    are files of scenarios.
    """

    gpu: str
    tensor_parallel: int
    expert_parallel: bool
    max_num_batched_tokens: int
    max_num_seqs: int
    policy: str
    dispatch: str

    @property
    def name(self) -> str:
        """In words, without the GPU."""
        experts = ", expert parallel" if self.expert_parallel else ""
        return (
            f"tensor parallel {self.tensor_parallel}{experts}, policy {self.policy}, dispatch "
            f"{self.dispatch}, {self.max_num_batched_tokens:,} tokens and {self.max_num_seqs:,} "
            "requests an iteration"
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate with so many replicas, at `load` times the trace's rate.

    Iterations take `slower` times the seconds that the costs have. `hour` is the one of the trace
    that is served alone, None: all that is taken of it.
    """

    candidate: Candidate
    replicas: int
    load: float = 1.0
    slower: float = 1.0
    hour: int | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.tensor_parallel


@dataclass(frozen=True, slots=True)
class TrialValues:
    """What a trial gave: the value of each objective in seconds; `why` it cannot be, if so."""

    values_s: tuple[float, ...]
    why: str = ""


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates without duplicates: of each choice of limits, policy and dispatch every split.

    The order of the choices stays, so that usual settings come first.
    """
    choices: dict[tuple[object, ...], list[Candidate]] = {}
    for one in dict.fromkeys(candidates):
        key = (one.policy, one.dispatch, one.max_num_batched_tokens, one.max_num_seqs)
        choices.setdefault(key, []).append(one)
    return [one for each in choices.values() for one in each]
