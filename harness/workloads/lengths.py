"""Lengths of prompts and answers: made-up distributions, or pairs as they were measured.

Every class is named in a workload's `lengths`. Prompts and answers have streams of random numbers
of their own.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, Share, Tokens, read_json
from harness.workloads.ecdf import Ecdf, length_files, load_lengths
from harness.workloads.settings import SIGMA, require_between, require_positive

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Generator = np.random.Generator

PAIRS = PROFILES / "pairs"
AT_ONCE = 4096  # pairs


class Drawn(NamedTuple):
    """Lengths in tokens of as many requests."""

    prompt_tokens: Ints
    output_tokens: Ints


class Lengths(Protocol):
    """Where the lengths of requests come from."""

    @property
    def files(self) -> Mapping[str, str]:
        """The tables behind it, with their sha256."""

    def draw(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        """Lengths of `count` requests, each at least 1. Same states, same lengths."""


class Lognormal:
    """Prompt and answer independent of each other, each lognormal."""

    def __init__(
        self,
        *,
        prompt_median_tokens: float,
        prompt_sigma: float,
        output_median_tokens: float,
        output_sigma: float,
        max_prompt_tokens: int,
    ) -> None:
        """Sigmas are of the logarithm, 0 for lengths that are all the same."""
        require_positive(
            "workload.lengths",
            prompt_median_tokens=prompt_median_tokens,
            output_median_tokens=output_median_tokens,
            max_prompt_tokens=max_prompt_tokens,
        )
        sigmas = {"prompt_sigma": prompt_sigma, "output_sigma": output_sigma}
        require_between("workload.lengths", *SIGMA, **sigmas)
        self._prompt = (prompt_median_tokens, prompt_sigma, max_prompt_tokens)
        self._output = (output_median_tokens, output_sigma)
        self.files: Mapping[str, str] = {}

    def draw(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        """As `Lengths`."""
        median, sigma, longest = self._prompt
        return Drawn(
            lognormal_tokens(median, sigma, count, prompts).clip(1, longest),
            lognormal_tokens(*self._output, count, outputs).clip(1),
        )


def lognormal_tokens(median: float, sigma: float, count: int, rng: Generator) -> Ints:
    """Whole lengths, 0 to 2**31, of this median; sigma is that of the logarithm."""
    drawn = np.minimum(median * np.exp(sigma * rng.standard_normal(count)), 2.0**31)
    tokens: Ints = np.rint(drawn).astype(np.int64)
    return tokens


class Paired:
    """Pairs of a stored table, where the answer's length depends on the prompt's.

    A prompt is drawn, then an answer among those to prompts about as long. Below the bins nothing
    is kept: a pair that was measured is not drawn again as it was.
    """

    def __init__(
        self, *, table: str, part: str | int, outputs: str | None, longest_output_tokens: int | None
    ) -> None:
        """`part` of a table of harness/profiles/pairs.

        With `outputs`, a table of harness/profiles/lengths, an answer has the length of that table
        at the rank that it has among the answers of its own; without, its own. Pairs whose answer
        exceeds `longest_output_tokens` are left out.
        """
        self._pairs = load_pairs(table, str(part))
        self._outputs = None if outputs is None else load_lengths(outputs)
        self._longest = longest_output_tokens
        shortest = 1 + int(min(answers.tokens[0] for answers in self._answers()))
        if longest_output_tokens is not None and longest_output_tokens < shortest:
            raise ValueError(
                f"workload.lengths.longest_output_tokens is {longest_output_tokens}, "
                f"the shortest answer has {shortest}"
            )
        answers = [] if outputs is None else [outputs]
        self.files = {**inputs.digests([PAIRS / f"{table}.json"]), **length_files(answers)}

    def _answers(self) -> tuple[Ecdf, ...]:
        return self._pairs.outputs if self._outputs is None else (self._outputs,)

    def draw(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        """As `Lengths`. The first of many are those of few: pairs are drawn one after the other."""
        parts = [Drawn(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        while (lack := count - sum(len(part.prompt_tokens) for part in parts)) > 0:
            # Always as many at a time: later draws must not depend on the caller's number.
            drawn = self._draw_any(AT_ONCE, prompts, outputs)
            kept = drawn.output_tokens <= (self._longest or drawn.output_tokens.max())
            parts.append(Drawn(*(tokens[kept][:lack] for tokens in drawn)))
        return Drawn(*(np.concatenate(tokens) for tokens in zip(*parts, strict=True)))

    def _draw_any(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        prompt_tokens = self._pairs.prompts.at_share(1.0 - prompts.random(count))
        shares = outputs.random((count, 1 if self._outputs is None else 2))
        output_tokens = self._pairs.answers(prompt_tokens, 1.0 - shares[:, 0])
        if self._outputs is not None:
            # a whole length stands for a range of ranks
            below, up_to = (self._pairs.rank(output_tokens - less) for less in (1, 0))
            share = up_to - (up_to - below) * shares[:, 1]
            output_tokens = self._outputs.at_share(share)
        return Drawn(prompt_tokens, output_tokens)


class Pairs:
    """Lengths of prompts, and of answers by prompt: `outputs[i]` to prompts up to `ends[i]`."""

    def __init__(self, prompts: Ecdf, ends: ArrayLike, outputs: tuple[Ecdf, ...]) -> None:
        self.prompts = prompts
        self.ends: Ints = np.asarray(ends, np.int64)
        self.outputs = outputs
        edges = prompts.cdf(np.concatenate([[0], self.ends]))
        self._weight: Floats = np.diff(edges)

    def answers(self, prompt_tokens: Ints, share: Floats) -> Ints:
        """The answer to every prompt that is longer than this share of those to such prompts."""
        bins = np.searchsorted(self.ends[:-1], prompt_tokens, side="left")
        found = np.zeros(len(prompt_tokens), np.int64)
        for place, outputs in enumerate(self.outputs):
            found[bins == place] = outputs.at_share(share[bins == place])
        return found

    def rank(self, output_tokens: Ints) -> Floats:
        """Share of all answers that are not longer, 0 or more tokens."""
        shares: Floats = self._ranks[np.minimum(output_tokens, len(self._ranks) - 1)]
        return shares

    @cached_property
    def _ranks(self) -> Floats:
        """By output tokens, up to the longest."""
        every = np.arange(1 + max(int(outputs.tokens[-1]) for outputs in self.outputs))
        shares = [outputs.cdf(every) for outputs in self.outputs]
        return np.asarray(np.average(shares, axis=0, weights=self._weight), np.float64)


class _Lengths(Schema):
    tokens: tuple[Tokens, ...]
    cumulative: tuple[Share, ...]
    mean_tokens: NotNegative


class _Answers(_Lengths):
    up_to_prompt_tokens: Tokens


class _Part(Schema):
    count: Count
    prompts: _Lengths
    outputs: Annotated[tuple[_Answers, ...], Field(min_length=1)]


class _Stored(Schema):
    """A file of pairs."""

    kind: str
    source: str
    parts: Mapping[str, _Part]


@cache
def load_pairs(table: str, part: str) -> Pairs:
    """A part of a stored table of pairs. Raises ValueError, with the closest names, if unknown."""
    known = {path.stem: path for path in PAIRS.glob("*.json")}
    if table not in known:
        raise ValueError(unknown_name("table of pairs", table, known))
    content = read_json(known[table], _Stored).model_dump()
    parts: Mapping[str, Any] = content["parts"]
    if part not in parts:
        raise ValueError(unknown_name(f"part of {table}", part, parts))
    chosen = parts[part]
    said = {"kind": content["kind"], "source": content["source"]}
    try:
        return Pairs(
            _ecdf(chosen["prompts"], said),
            [answers["up_to_prompt_tokens"] for answers in chosen["outputs"]],
            tuple(_ecdf(answers, said) for answers in chosen["outputs"]),
        )
    except ValueError as error:
        raise ValueError(f"{known[table]}: parts.{part}: {error}") from None


def _ecdf(raw: Mapping[str, Any], said: Mapping[str, str]) -> Ecdf:
    return Ecdf(
        raw["tokens"],
        raw["cumulative"],
        mean_tokens=raw["mean_tokens"],
        cap_tokens=raw["tokens"][-1],
        kind=said["kind"],
        source=said["source"],
    )
