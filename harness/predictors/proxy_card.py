"""What lies beside the weights of a proxy model, read without the libraries that run it."""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.config import inputs

Json = dict[str, Any]

CARD = "card.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
ENCODER = "encoder.json"
FIELDS = (
    *("head", "base", "shared_encoder", "data", "split", "lengths", "frame", "metrics"),
    *("latency_s", "seed", "epochs", "versions", "machine", "weights_sha256"),
)
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


def require(libraries: tuple[str, ...] = LIBRARIES) -> None:
    """Raises ValueError, with the command that installs them, where libraries are missing."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise ValueError(f"proxy models need {', '.join(missing)}: make setup-train")


def read_card(folder: Path) -> Json:
    """The card of a checkpoint. Raises ValueError for one that is missing, partial or damaged."""
    for name in (CARD, WEIGHTS, TOKENIZER, ENCODER):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} is no checkpoint of a proxy model, {name} is missing: train one with "
                "python -m harness.tools.training --prompts FILE (prompt, response_tokens)"
            )
    try:
        card = inputs.read_json(folder / CARD)
    except ValueError as error:
        raise ValueError(f"{folder / CARD} is not JSON: {error}") from error
    absent = [name for name in FIELDS if not isinstance(card, dict) or name not in card]
    if absent:
        raise ValueError(f"{folder / CARD} does not say {', '.join(absent)}")
    if inputs.sha256(folder / WEIGHTS) != card["weights_sha256"]:
        raise ValueError(f"{folder / WEIGHTS} is damaged: these are not the weights of its card")
    return dict(card)


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
