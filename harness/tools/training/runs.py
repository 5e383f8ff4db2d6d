"""One training run: data to checkpoints, cards, tables of errors and a summary."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from harness.predictors.proxy_heads import HEADS, TrainingLengths, lengths_of
from harness.predictors.proxy_model import ProxyModel, ids_of, load, save, states_of
from harness.runs.provenance import machine
from harness.tools.fitting.lengths import MEASURED_HERE, class_table
from harness.tools.fitting.stored import as_text, rounded
from harness.tools.training.bases import Base, base_of
from harness.tools.training.data import Splits, texts
from harness.tools.training.scores import Json, latency, scores, timed
from harness.tools.training.training import (
    REFERENCES,
    EncodedSplit,
    TrainingSettings,
    reference_of,
    train,
)

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "scikit-learn", "numpy")
TIMED = 300  # test prompts whose predictions are timed
TENTHS = 10  # classes in the table of a head that predicts lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What to train and where to put it: checkpoints below `out`, tables into `profiles`."""

    base: str
    heads: Sequence[str]
    separate: bool
    settings: TrainingSettings
    out: Path
    profiles: Path


def run(splits: Splits, plan: TrainingPlan) -> Iterator[Json]:
    """Train, keep and judge every head; a row of the summary for each."""
    lengths = lengths_of(splits.train["tokens"].to_numpy())
    base = base_of(plan.base, texts(splits.train), plan.settings.seed)
    groups = [[name] for name in plan.heads] if plan.separate else [list(plan.heads)]
    for heads in groups:
        own = (copy.deepcopy(base[0]), *base[1:]) if plan.separate else base
        yield from _group(splits, plan, heads, own, lengths)


def _group(
    splits: Splits, plan: TrainingPlan, heads: Sequence[str], base: Base, lengths: TrainingLengths
) -> Iterator[Json]:
    encoder, tokenizer, frame = base
    parts = tuple(
        EncodedSplit.of(ids_of(tokenizer, frame, texts(part)), part["tokens"].to_numpy())
        for part in (splits.train, splits.validation)
    )
    every, history = train(encoder, frame, heads, parts, lengths, plan.settings)
    encoder.eval()
    states = states_of(encoder, frame, ids_of(tokenizer, frame, texts(splits.test)))
    for name in heads:
        layers = every[name].eval()
        reference = None
        if HEADS[name].learns == "order":
            first = parts[0].rows[:REFERENCES]
            reference = reference_of(layers, states_of(encoder, frame, first), parts[0].tokens)
        model = ProxyModel(name, encoder, layers, tokenizer, frame, lengths, reference)
        losses = {phase: history[phase] for phase in ("all", name)}
        yield _judged(splits, plan, model, states, losses, shared=len(heads) > 1)


def _judged(
    splits: Splits,
    plan: TrainingPlan,
    model: ProxyModel,
    states: Any,
    losses: Json,
    *,
    shared: bool,
) -> Json:
    """Keep one head with its card and table; its row of the summary."""
    predicted = model.tokens_of(states)
    metrics = _metrics(splits, model, predicted)
    folder = plan.out / model.head
    card = {
        "base": plan.base,
        "shared_encoder": shared,
        "data": dict(splits.files),
        "split": splits.sizes,
        "metrics": metrics,
        "seed": plan.settings.seed,
        "epochs": rounded(losses, digits=5),
        "versions": {name: version(name) for name in LIBRARIES},
        "machine": machine(),
        "threads": torch.get_num_threads(),
    }
    save(model, folder, {**card, "latency_s": {}})
    # What is timed is what will be loaded.
    kept = load(folder)
    seconds = timed(lambda text: kept.tokens([text]), texts(splits.test)[:TIMED])
    save(model, folder, {**card, "latency_s": latency(seconds)})
    _write_table(splits, plan, model, predicted, seconds)
    return {"name": model.head, **metrics, "latency_s": latency(seconds)}


def _metrics(splits: Splits, model: ProxyModel, predicted: Any) -> Json:
    """Scores on the test split; the correlation also within each source of prompts."""
    truth = splits.test["tokens"].to_numpy()
    within = {
        source: scores(truth[of], predicted[of], model.lengths, model.head)["spearman"]
        for source in sorted(set(splits.test["source"]))
        if (of := (splits.test["source"] == source).to_numpy()).sum() > 2
    }
    whole = scores(truth, predicted, model.lengths, model.head)
    return {**whole, "spearman_by_source": within}


def _write_table(
    splits: Splits, plan: TrainingPlan, model: ProxyModel, predicted: Any, seconds: Any
) -> None:
    """Its errors on the test split, for `predictor=empirical`."""
    head = HEADS[model.head]
    if head.learns in ("class", "rank"):
        classes = model.lengths.class_of(predicted)
    elif head.learns == "half":
        classes = model.lengths.half_of(predicted)
    else:
        ends = np.unique(np.quantile(predicted, np.linspace(0, 1, TENTHS + 1)[1:-1]))
        classes = np.searchsorted(ends, predicted, side="left")
    content = class_table(
        splits.test["tokens"],
        pd.Series(classes),
        pd.Series(seconds),
        kind=f"measured classes of the head {model.head}, tenths of its predictions if lengths",
        source=(
            f"python -m harness.tools.training: base {plan.base}, seed {plan.settings.seed}, test "
            f"split of {', '.join(sorted({name.partition('/')[0] for name in splits.files}))}"
        ),
    )
    plan.profiles.mkdir(parents=True, exist_ok=True)
    path = plan.profiles / f"{MEASURED_HERE}{model.head}.json"
    path.write_text(as_text(content), encoding="utf-8")
