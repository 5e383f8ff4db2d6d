"""A proxy model that can be asked: encoder, head and tokenizer, kept in one folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as parameters
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel

from harness.config import inputs
from harness.predictors.proxy_card import CARD, ENCODER, TOKENIZER, WEIGHTS, Json, read_card, sha256
from harness.predictors.proxy_heads import HEADS, Reference, TrainingLengths, decoded, new_layers

Ints = NDArray[np.int64]
BATCH = 64  # texts at a time where no request waits for a single one
WINDOW_TOKENS = 512
"""Texts are read to their last 512 tokens, framed (arXiv 2404.08509 sec. 3.1)."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Ids of what stands before and after every text (CLS and SEP), and of padding."""

    first: int
    last: int
    pad: int


def ids_of(tokenizer: Any, frame: Frame, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of every text: its end, so that with the frame they fit `WINDOW_TOKENS`."""
    room = WINDOW_TOKENS - 2
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [[frame.first, *one.ids[-room:], frame.last] for one in encoded]


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """Ids and attention mask of a batch, as long as its longest row."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    return ids, mask


@dataclass(frozen=True, slots=True)
class ProxyModel:
    """One head on its encoder."""

    head: str
    encoder: Any
    layers: Any
    tokenizer: Any
    frame: Frame
    lengths: TrainingLengths
    reference: Reference | None

    def tokens(self, texts: Sequence[str]) -> Ints:
        """Predicted output tokens of every text."""
        states = states_of(self.encoder, self.frame, ids_of(self.tokenizer, self.frame, texts))
        return self.tokens_of(states)

    def tokens_of(self, states: Any) -> Ints:
        """The same for texts whose states the encoder has computed already."""
        with torch.inference_mode():
            output = self.layers(states)
        return decoded(HEADS[self.head], output, self.lengths, self.reference)


def states_of(encoder: Any, frame: Frame, rows: Sequence[Sequence[int]]) -> Any:
    """The encoder's state of the first token of every row, without dropout; leaves it so."""
    encoder.eval()
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    parts = []
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            batch = [rows[place] for place in order[start : start + BATCH]]
            parts.append(first_states(encoder, *padded(batch, frame.pad)))
    found = torch.cat(parts)
    states = torch.empty_like(found)
    states[torch.tensor(order)] = found
    return states


def first_states(encoder: Any, ids: Any, mask: Any) -> Any:
    """Last hidden state of the first token of every row."""
    return encoder(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]


def without_pooler(encoder: Any) -> Any:
    """The same encoder: the layer that some have behind the state of the first token is unused."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


def save(model: ProxyModel, folder: Path, card: Mapping[str, Any]) -> None:
    """Write weights, tokenizer, the encoder's configuration and the card."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {f"encoder.{k}": v.contiguous() for k, v in model.encoder.state_dict().items()}
    named |= {f"head.{k}": v.contiguous() for k, v in model.layers.state_dict().items()}
    save_file(named, str(folder / WEIGHTS))
    model.tokenizer.save(str(folder / TOKENIZER))
    (folder / ENCODER).write_text(model.encoder.config.to_json_string(), encoding="utf-8")
    content: Json = {
        **card,
        "head": model.head,
        "lengths": asdict(model.lengths),
        "frame": asdict(model.frame),
        "reference": asdict(model.reference) if model.reference else None,
        "weights_sha256": sha256(folder / WEIGHTS),
    }
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    (folder / CARD).write_text(text, encoding="utf-8")


def load(folder: Path) -> ProxyModel:
    """What `save` wrote. Raises ValueError for a folder that does not hold that."""
    card = read_card(folder)
    try:
        values = inputs.read_json(folder / ENCODER)
        config = AutoConfig.for_model(**values)
        encoder = without_pooler(AutoModel.from_config(config))
        layers = new_layers(config.hidden_size, HEADS[card["head"]])
        named = parameters(inputs.read(folder / WEIGHTS))
        for part, prefix in ((encoder, "encoder."), (layers, "head.")):
            part.load_state_dict(
                {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}
            )
            part.eval()
        tokenizer = Tokenizer.from_str(inputs.read(folder / TOKENIZER).decode())
    except Exception as error:  # each library has its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{folder} cannot be loaded: {reason}") from error
    reference = card.get("reference")
    return ProxyModel(
        head=card["head"],
        encoder=encoder,
        layers=layers,
        tokenizer=tokenizer,
        frame=Frame(**card["frame"]),
        lengths=TrainingLengths(**card["lengths"]),
        reference=Reference(**reference) if reference else None,
    )
