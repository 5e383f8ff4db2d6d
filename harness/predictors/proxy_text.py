"""Texts as a proxy model reads them: the last 512 tokens, framed (arXiv 2404.08509 sec. 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

WINDOW_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Frame:
    """Ids of what stands before and after every text (CLS and SEP), and of padding."""

    first: int
    last: int
    pad: int


def ids_of(
    tokenizer: Any, frame: Frame, texts: Sequence[str], window_tokens: int = WINDOW_TOKENS
) -> list[list[int]]:
    """Token ids of every text: its end, so that with the frame there are at most so many."""
    room = window_tokens - 2
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
