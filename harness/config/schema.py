"""Files of numbers, held against the shape that is written down beside their reader.

A shape is a `Schema` or a dataclass whose fields say what they may be (`Seconds`, `Count` ...).
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.config import inputs
from harness.config.yaml_files import text_of

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
"""For `__pydantic_config__` of a dataclass: no unknown key, no number that is none, no guessing."""

Shape = TypeVar("Shape")
Count = Annotated[int, Field(ge=1, le=2**62)]
Tokens = Annotated[int, Field(ge=0, le=2**31)]
Seconds = Annotated[float, Field(ge=0.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e30)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e30)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def one_of(*words: str) -> Any:
    """A text that is one of these words."""

    def check(word: str) -> str:
        if word not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return word

    return AfterValidator(check)


class Schema(BaseModel):
    """What a file, or a part of one, may say."""

    model_config = STRICT


def read_json(path: Path, shape: type[Shape]) -> Shape:
    """What a JSON file holds, in its shape. ValueError, a sentence with file, key and value."""
    return fits(_loaded(path, text_of(path)), shape, str(path))


def read_named(path: Path, shape: type[Shape]) -> Mapping[str, Shape]:
    """What a JSON file holds by name, each with its `name` in this shape. ValueError likewise."""
    raw = read_json(path, dict[str, dict[str, Any]])
    inputs.parted(path, raw)
    named = {
        name: fits({"name": name, **facts}, shape, f"{path}: {name}") for name, facts in raw.items()
    }
    return MappingProxyType(named)


def fits(value: object, shape: type[Shape], where: str) -> Shape:
    """The same for what is read already; `where` begins the sentence."""
    try:
        kind: Any = shape
        found: Shape = _adapter(kind).validate_json(json.dumps(value))
        return found
    except ValidationError as error:
        raise ValueError(f"{where}: {sentence_of(error)}") from None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def without_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """What an object of JSON holds. Raises ValueError for a key that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key in found if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice:.60} is there twice")
    return found


def _loaded(path: Path, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=without_twice)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} line {error.lineno} is not JSON: {error.msg}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None


_WORDS = {
    "Input should be": "it must be",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "a valid list": "a list",
    r"a valid dictionary( or instance of \w+)?": "keys with values",
}
"""What pydantic says, and how a sentence here has it."""


def sentence_of(error: ValidationError) -> str:
    """The first thing that does not fit: its key, its value, what is allowed."""
    first = error.errors(include_url=False)[0]
    key = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in first["loc"]).lstrip(".")
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"there is no key {key}, which is {first['input']!r:.60}"
    said = first["msg"].removeprefix("Value error, ")
    for theirs, ours in _WORDS.items():
        said = re.sub(theirs, ours, said)
    is_whole = first["type"] == "value_error" and isinstance(first["input"], dict)
    if is_whole:
        return f"{key}: {said}".lstrip(": ")
    return f"{key}={first['input']!r:.60}: {said}".removeprefix("=")
