"""Heads of a proxy model: what they output, their losses, and the length an output stands for.

arXiv 2404.08509 sec. 3.1 and table 2. Every head is two layers of 128 on the state of the first
token, and an output layer. Lengths are tokens throughout; the networks see them over the spread of
the training lengths, which scales a loss and changes nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn import functional

Ints = NDArray[np.int64]

HIDDEN = 128
QUANTILES = (0.25, 0.5, 0.75, 0.99)
"""Where the classes end. The paper says percentiles; those of its program are at these shares."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a head learns: `tokens`, `class`, `rank` (class as a number), `half` or `order`."""

    learns: str
    outputs: int = 1
    squared: bool = False


HEADS: Mapping[str, Head] = {
    "reg_l1": Head("tokens"),
    "reg_mse": Head("tokens", squared=True),
    "cls": Head("class", outputs=len(QUANTILES) + 1),
    "ord_l1": Head("rank"),
    "ord_mse": Head("rank", squared=True),
    "bin": Head("half", outputs=2),
    "pair": Head("order"),
}


@dataclass(frozen=True, slots=True)
class TrainingLengths:
    """What heads know of the training lengths: classes, halves, and their spread.

    `class_tokens` and `half_tokens` are the median length of each; class i holds lengths from
    bound i - 1 up to, not including, bound i.
    """

    class_bounds_tokens: Sequence[int]
    class_tokens: Sequence[int]
    class_weights: Sequence[float]
    half_bound_tokens: int
    half_tokens: Sequence[int]
    middle_tokens: float
    spread_tokens: float

    def class_of(self, tokens: ArrayLike) -> Ints:
        """Class of every length."""
        bounds = np.asarray(self.class_bounds_tokens)
        return np.asarray(np.digitize(np.asarray(tokens, np.float64), bounds), np.int64)

    def half_of(self, tokens: ArrayLike) -> Ints:
        """1 from the median on."""
        return np.asarray(np.asarray(tokens) >= self.half_bound_tokens, np.int64)


def lengths_of(tokens: Ints) -> TrainingLengths:
    """Of the training lengths. Raises ValueError where they are too alike for five classes."""
    bounds = np.rint(np.quantile(tokens, QUANTILES)).astype(int)
    classes = np.digitize(tokens, bounds)
    counts = np.bincount(classes, minlength=len(QUANTILES) + 1)
    if (counts == 0).any() or (np.diff(bounds) <= 0).any():
        raise ValueError(f"the training lengths do not fall into five classes, bounds {bounds}")
    half = int(np.median(tokens))
    return TrainingLengths(
        class_bounds_tokens=bounds.tolist(),
        class_tokens=[int(np.median(tokens[classes == c])) for c in range(len(counts))],
        class_weights=[float(w) for w in len(tokens) / (len(counts) * counts)],
        half_bound_tokens=half,
        half_tokens=[int(np.median(tokens[tokens < half])), int(np.median(tokens[tokens >= half]))],
        middle_tokens=float(np.median(tokens)),
        spread_tokens=float(np.std(tokens)),
    )


@dataclass(frozen=True, slots=True)
class Reference:
    """Training prompts that a pairwise head compares with: its output and the true length."""

    outputs: Sequence[float]
    tokens: Sequence[int]


def new_layers(state_size: int, head: Head) -> Any:
    """The layers of a head, at random."""
    return nn.Sequential(
        nn.Linear(state_size, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, head.outputs),
    )


def loss(head: Head, output: Any, tokens: Any, lengths: TrainingLengths) -> Any:
    """Mean loss of a batch; `output` has a row per text, `tokens` are true lengths.

    The pairwise head is asked of each text and the next one of the batch which is longer: the
    logistic loss of the difference of their outputs; equally long ones teach nothing.
    """
    if head.learns == "class":
        weights = torch.tensor(lengths.class_weights, dtype=output.dtype)
        classes = torch.from_numpy(lengths.class_of(tokens.numpy()))
        return functional.cross_entropy(output, classes, weight=weights)
    if head.learns == "half":
        return functional.cross_entropy(output, torch.from_numpy(lengths.half_of(tokens.numpy())))
    value = output[:, 0]
    if head.learns == "order":
        longer = torch.sign((tokens - tokens.roll(1)).to(value.dtype))
        apart = functional.softplus(-longer * (value - value.roll(1)))
        return (apart * longer.abs()).sum() / longer.abs().sum().clamp(min=1.0)
    if head.learns == "rank":
        wanted = torch.from_numpy(lengths.class_of(tokens.numpy())).to(value.dtype)
    else:
        wanted = (tokens.to(value.dtype) - lengths.middle_tokens) / lengths.spread_tokens
    off = value - wanted
    return off.square().mean() if head.squared else off.abs().mean()


def decoded(head: Head, output: Any, lengths: TrainingLengths, reference: Reference | None) -> Ints:
    """Predicted tokens of every row, at least 1.

    A class or half stands for its median training length; ordinal outputs are rounded to the
    nearest class. A pairwise head gives the length that exceeds as many of the reference's as the
    text wins comparisons with them.
    """
    if head.learns in ("class", "half"):
        middles = lengths.class_tokens if head.learns == "class" else lengths.half_tokens
        return np.array([middles[place] for place in output.argmax(dim=1).tolist()], np.int64)
    value = output[:, 0].double().numpy()
    if head.learns == "rank":
        classes = np.rint(value).clip(0, len(lengths.class_tokens) - 1).astype(int)
        return np.array([lengths.class_tokens[place] for place in classes], np.int64)
    if head.learns == "order":
        if reference is None:
            raise ValueError("a pairwise head predicts no lengths without its reference")
        wins = np.searchsorted(np.sort(reference.outputs), value) / len(reference.outputs)
        tokens = np.quantile(reference.tokens, wins)
    else:
        tokens = value * lengths.spread_tokens + lengths.middle_tokens
    return np.asarray(np.rint(tokens).clip(1), np.int64)
