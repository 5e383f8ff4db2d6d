"""Lengths drawn from an empirical distribution (arXiv 2503.16893 sec. 4.1)."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import NotNegative, Schema, Share, Tokens, read_json
from harness.costs.model_names import model_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LENGTHS = PROFILES / "lengths"


class _Stored(Schema):
    tokens: tuple[Tokens, ...]
    cumulative: tuple[Share, ...]
    mean_tokens: NotNegative
    cap_tokens: Tokens
    kind: str
    source: str
    record: Any = None


LENGTH_SAMPLES = 10_000  # answers behind the lengths of a model (arXiv 2503.16893 sec. 2)


@dataclass(eq=False)
class Ecdf:
    """A distribution of lengths: the share of lengths that do not exceed `tokens`.

    Between the points of its table the share is interpolated; lengths are whole tokens. The first
    point has share 0, the last 1. `kind` and `source` say where it comes from, `mean_tokens` and
    `cap_tokens` are the mean and largest length of the original.
    """

    tokens: Ints
    cumulative: Floats
    _: KW_ONLY
    mean_tokens: float
    cap_tokens: int
    kind: str
    source: str

    def __post_init__(self) -> None:
        self.tokens = np.asarray(self.tokens, np.int64)
        self.cumulative = np.asarray(self.cumulative, np.float64)
        if self.tokens.shape != self.cumulative.shape or len(self.tokens) < 2:
            raise ValueError(
                f"A length table pairs at least 2 lengths with shares, not {len(self.tokens)} "
                f"with {len(self.cumulative)}."
            )
        if (np.diff(self.tokens) <= 0).any() or (np.diff(self.cumulative) < 0).any():
            raise ValueError("The lengths and the shares of a length table must ascend.")
        if self.cumulative[0] != 0.0 or self.cumulative[-1] != 1.0:
            first, last = self.cumulative[[0, -1]]
            raise ValueError(f"A length table goes from share 0 to 1, not from {first} to {last}.")

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        """So many lengths in tokens, independent. Advances `rng` by `count` uniform numbers."""
        return self.at_share(1.0 - rng.random(count))

    def resampled(self, count: int, rng: np.random.Generator) -> "Ecdf":
        """The distribution of `count` samples of this one, as known from these samples alone."""
        drawn = self.sample(count, rng)
        tokens, counts = np.unique(drawn, return_counts=True)
        return Ecdf(
            np.append(tokens[0] - 1, tokens),
            np.append(0.0, np.cumsum(counts) / count),
            mean_tokens=float(drawn.mean()),
            cap_tokens=self.cap_tokens,
            kind=f"{count} samples of: {self.kind}",
            source=self.source,
        )

    def at_share(self, share: ArrayLike) -> Ints:
        """Smallest length not exceeded by a share of the lengths, for shares in (0, 1]."""
        wanted = np.asarray(share, np.float64)
        right = np.searchsorted(self.cumulative, wanted, side="left").clip(1)
        low, high = self.cumulative[right - 1], self.cumulative[right]
        inside = (wanted - low) / (high - low)
        span = self.tokens[right] - self.tokens[right - 1]
        # rounding must not push a share that is exactly at a point past it
        return np.asarray(self.tokens[right - 1] + np.ceil(inside * span - 1e-9).clip(1), np.int64)

    def cdf(self, tokens: ArrayLike) -> Floats:
        """Share of lengths that do not exceed `tokens`; same shape."""
        shares: Floats = np.interp(np.floor(tokens), self.tokens, self.cumulative)
        return shares


@cache
def load_lengths(name: str) -> Ecdf:
    """The stored lengths of the outputs of a service's model, or `mixinstruct_prompts`.

    Raises ValueError, with the closest names, if there are none.
    """
    path = _path(name)
    raw = read_json(path, _Stored).model_dump(exclude={"record"})
    try:
        return Ecdf(**raw)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def length_files(names: Iterable[str]) -> dict[str, str]:
    """The files that `load_lengths` reads for these, by name, with their sha256.

    Raises ValueError as it does.
    """
    return inputs.digests(map(_path, names))


@cache
def _path(name: str) -> Path:
    name = model_of(name)
    known = {path.stem: path for path in LENGTHS.glob("*.json")}
    if name not in known:
        raise ValueError(unknown_name("length profile", name, known))
    return known[name]


def output_lengths(
    ecdf: Ecdf,
    prompt_tokens: ArrayLike,
    *,
    max_output_tokens: ArrayLike,
    max_context_tokens: int,
    rng: np.random.Generator,
) -> Ints:
    """One output length per prompt: min(X, y, l_max - l_in), at least 1 (2503.16893 sec. 4.1).

    X is drawn, y is `max_output_tokens`, l_max is `max_context_tokens`.
    """
    prompts = np.asarray(prompt_tokens, np.int64)
    room = np.minimum(max_output_tokens, max_context_tokens - prompts)
    drawn: Ints = ecdf.sample(prompts.size, rng).reshape(prompts.shape)
    clipped: Ints = np.maximum(1, np.minimum(drawn, room))
    return clipped
