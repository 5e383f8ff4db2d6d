"""Files of requests as tests want them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def own(written: Callable[[str, str], Path]) -> Callable[..., Path]:
    """A file of our own columns, of rows that differ from a plain one."""

    def write(*rows: dict[str, object]) -> Path:
        plain = {"arrival_s": 0.0, "prompt_tokens": 10, "output_tokens": 5}
        return written("own.jsonl", "\n".join(json.dumps({**plain, **row}) for row in rows))

    return write
