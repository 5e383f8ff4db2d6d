"""The one renderer of Markdown and HTML: the templates of this folder and their filters."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from harness.claims.texts import NONE
from harness.claims.verdicts import Word

Frames = dict[str, Any]
"""What a template shows, by name."""
PLURALS = {Word.HOLDS: "hold", Word.FAILS: "fail"}


def render(name: str, **frames: Any) -> str:
    """A template of templates/ with these frames. UndefinedError for one that it lacks.

    In HTML every value is escaped. Markdown has one empty line between its parts, however many the
    template leaves.
    """
    text = ENVIRONMENT.get_template(name).render(frames)
    return text if name.endswith(".html.j2") else re.sub(r"\n{3,}", "\n\n", text).strip()


def number(value: float | None, form: str) -> str:
    """As `format` has it; of no value (None, NaN) a dash."""
    return NONE if value is None or value != value else format(value, form)


def short(value: float) -> str:
    """One digit behind the point, or three digits below 1."""
    return f"{value:,.1f}" if value == 0 or abs(value) >= 1 else f"{value:.3g}"


def table(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table."""
    lines: list[Iterable[object]] = [frame.columns, ["---"] * frame.shape[1]]
    lines += frame.itertuples(index=False, name=None)
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(value: object) -> str:
    """A text as a Markdown table can hold it."""
    return str(value).replace("|", "/").replace("\n", " ")


def sentence(text: str) -> str:
    """With a capital at its beginning and a point at its end."""
    return f"{text[0].upper()}{text[1:]}."


def plain(text: str) -> str:
    """Markdown as plain text."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("*", "")


def counted(words: Iterable[str]) -> list[tuple[str, int, str]]:
    """Each of the four words with its count, and both as they are said: "2 hold"."""
    found = Counter(map(Word, words))
    return [(it.value, found[it], f"{found[it]} {PLURALS.get(it, it)}") for it in Word]


def data(value: object) -> str:
    """JSON for a script element, of which no text can end the element."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def line(text: str) -> str:
    """A paragraph that a template has on several lines as one."""
    return " ".join(text.split()) + "\n"


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(["html.j2"], default=False),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters |= {
    it.__name__: it for it in (number, short, table, cell, sentence, plain, counted, data, line)
}
