"""Reading what is to be shown, and tables of it as Markdown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """Content of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "/").replace("\n", " ")
