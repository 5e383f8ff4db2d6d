"""Two-phase fine-tuning: first all weights, then only the heads (arXiv 2404.08509 sec. 3.1).

Several heads may share the first phase: their losses are added and one encoder learns from all of
them, which the paper does not do. The second phase is each head's own. There the encoder is fixed
and its states are computed once, without dropout.
"""

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.predictors.proxy_heads import HEADS, Reference, TrainingLengths, loss, new_layers
from harness.predictors.proxy_model import Frame, first_states, padded, states_of

Ints = NDArray[np.int64]

REFERENCES = 500  # training prompts that a pairwise head is compared with
WARM_STEPS = 20
LEARNED_TOKENS = 128
"""The end of a text that the first phase learns from: few are longer, and those cost the most."""
POOL = 60  # batches whose rows are sorted by length, so that little is padded


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Epochs, learning rates and rows of a batch in each phase.

    Rates of the first phase fall linearly to its end. Early stopping: a phase ends after `patience`
    epochs without a smaller validation loss, and the first also after `most_s` seconds, towards
    which its rates fall if that comes sooner. The weights of the best epoch are kept. The rates and
    sizes are our choice, for a few hundred steps; the paper states none.
    """

    epochs: int
    most_s: float
    seed: int
    head_epochs: int = 30
    encoder_rate: float = 1e-4
    head_rate: float = 5e-4
    second_rate: float = 1e-3
    batch: int = 32
    patience: int = 3


@dataclass(frozen=True, slots=True)
class EncodedSplit:
    """A split as networks read it: token ids, and true output tokens."""

    rows: Sequence[Sequence[int]]
    tokens: Any

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], tokens: Ints) -> "EncodedSplit":
        """The lengths become a tensor."""
        return cls(rows, torch.from_numpy(np.array(tokens, np.int64)))


def train(
    encoder: Any,
    frame: Frame,
    heads: Sequence[str],
    parts: Sequence[EncodedSplit],
    lengths: TrainingLengths,
    settings: TrainingSettings,
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Train `encoder` in place and new layers for every head; same seed, same weights.

    Returns the layers per head, and the validation loss after each epoch of both phases.
    `parts` are training and validation. Only the time limit of the first phase may make two runs
    differ.
    """
    torch.manual_seed(settings.seed)
    layers = {name: new_layers(encoder.config.hidden_size, HEADS[name]) for name in heads}
    history = {"all": _all_weights(encoder, frame, layers, parts, lengths, settings)}
    encoder.requires_grad_(False)
    states = tuple(states_of(encoder, frame, part.rows).clone() for part in parts)
    for name in heads:
        history[name] = _head_only(name, layers[name], states, parts, lengths, settings)
    return layers, history


def reference_of(layers: Any, states: Any, tokens: Any) -> Reference:
    """The first training prompts: what a pairwise head says of them, and their lengths."""
    with torch.inference_mode():
        outputs = layers(states[:REFERENCES])[:, 0]
    return Reference([float(v) for v in outputs], [int(n) for n in tokens[:REFERENCES]])


def _all_weights(
    encoder: Any,
    frame: Frame,
    layers: Mapping[str, Any],
    parts: Sequence[EncodedSplit],
    lengths: TrainingLengths,
    settings: TrainingSettings,
) -> list[float]:
    """The first phase; validation losses by epoch."""
    train, validation = parts
    rows = [[row[0], *row[1:][-LEARNED_TOKENS:]] for row in train.rows]
    whole = torch.nn.ModuleDict({"encoder": encoder, **layers})
    head_weights = [p for part in layers.values() for p in part.parameters()]
    rates = (encoder.parameters(), settings.encoder_rate), (head_weights, settings.head_rate)
    optimizer = torch.optim.AdamW([{"params": list(p), "lr": rate} for p, rate in rates])
    pace = _Pace(settings, -(-len(train.rows) // settings.batch))
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: pace.rate())
    kept = _Best(whole, settings.patience)
    rng = np.random.default_rng([settings.seed, 11])
    while not kept.losses or pace.done() < 1.0:
        whole.train()
        for batch in by_length(rows, settings.batch, rng):
            states = first_states(encoder, *padded([rows[i] for i in batch], frame.pad))
            _step(layers, states, train.tokens[torch.from_numpy(batch)], lengths, optimizer)
            pace.steps += 1
            decay.step()
            if pace.done() >= 1.0:
                break
        states = states_of(encoder, frame, validation.rows)
        with torch.inference_mode():
            value = float(_together(layers, states, validation.tokens, lengths))
        print(f"step {pace.steps}, {pace.done():.0%}: validation loss {value:.4f}", flush=True)
        if kept.is_done(value):
            break
    kept.restore()
    return kept.losses


class _Pace:
    """How far the first phase is, by steps or by time, whichever is further."""

    def __init__(self, settings: TrainingSettings, steps_per_epoch: int) -> None:
        self._most_steps = max(1, settings.epochs * steps_per_epoch)
        self._most_s, self._started_s = settings.most_s, time.monotonic()
        self.steps = 0

    def done(self) -> float:
        """From 0 to 1, where it ends."""
        spent_s = time.monotonic() - self._started_s
        return max(self.steps / self._most_steps, spent_s / self._most_s)

    def rate(self) -> float:
        """Share of the learning rates: up at first, then linearly down."""
        return min((self.steps + 1) / WARM_STEPS, max(0.02, 1.0 - self.done()))


def _head_only(
    name: str,
    layers: Any,
    states: Sequence[Any],
    parts: Sequence[EncodedSplit],
    lengths: TrainingLengths,
    settings: TrainingSettings,
) -> list[float]:
    """The second phase of one head; validation losses by epoch, the first before any."""
    head = {name: layers}
    optimizer = torch.optim.AdamW(layers.parameters(), lr=settings.second_rate)
    kept = _Best(layers, settings.patience)
    rng = np.random.default_rng([settings.seed, 12])
    for epoch in range(settings.head_epochs + 1):
        for batch in _batches(rng.permutation(len(states[0])), settings.batch) if epoch else ():
            rows = torch.from_numpy(batch)
            _step(head, states[0][rows], parts[0].tokens[rows], lengths, optimizer)
        with torch.inference_mode():
            value = _together(head, states[1], parts[1].tokens, lengths)
        if kept.is_done(float(value)):
            break
    kept.restore()
    return kept.losses


def _step(
    layers: Mapping[str, Any], states: Any, tokens: Any, lengths: TrainingLengths, optimizer: Any
) -> None:
    if len(tokens) < 2:  # nothing to compare a single text with
        return
    optimizer.zero_grad()
    _together(layers, states, tokens, lengths).backward()
    optimizer.step()


def _together(layers: Mapping[str, Any], states: Any, tokens: Any, lengths: TrainingLengths) -> Any:
    losses = [loss(HEADS[name], part(states), tokens, lengths) for name, part in layers.items()]
    return sum(losses[1:], losses[0])


def by_length(
    rows: Sequence[Sequence[int]], batch: int, rng: np.random.Generator
) -> Iterator[Ints]:
    """Every row once, at random, in batches of rows about as long as each other."""
    sizes = np.array([len(row) for row in rows])
    order = rng.permutation(len(rows))
    for pool in _batches(order, batch * POOL):
        ready = list(_batches(pool[np.argsort(sizes[pool], kind="stable")], batch))
        for place in rng.permutation(len(ready)):
            # Neighbours are compared by the pairwise head, which must not learn the sorting.
            yield rng.permutation(ready[place])


def _batches(order: Ints, batch: int) -> Iterator[Ints]:
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


class _Best:
    """The weights with the smallest validation loss so far."""

    def __init__(self, module: Any, patience: int) -> None:
        self._module, self._patience = module, patience
        self._weights: Any = None
        self.losses: list[float] = []

    def is_done(self, value: float) -> bool:
        """Note an epoch's loss; True where it is time to stop."""
        if not self.losses or value < min(self.losses):
            self._weights = copy.deepcopy(self._module.state_dict())
        self.losses.append(value)
        return len(self.losses) - 1 - int(np.argmin(self.losses)) >= self._patience

    def restore(self) -> None:
        """Put the best weights back."""
        self._module.load_state_dict(self._weights)
