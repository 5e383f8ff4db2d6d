"""Rows of files as everyday tools write them: parquet, JSON lines, JSON, CSV and its relatives.

The content tells the kind of a file and its compression; the name decides only between JSON and
CSV where the first character does not.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from harness.config import inputs
from harness.config.schema import without_twice

_JSON = (".json", ".jsonl", ".ndjson")
_TABLE = (".csv", ".tsv")
_SEPARATORS = ",;\t|"
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
"""Marks of byte order at the beginning of a text, and its encoding."""
_OTHERS = (
    (b"%PDF", "a PDF"),
    (b"ARROW1", "an Arrow file"),
    (b"\xd0\xcf\x11\xe0", "an Excel file"),
    (b"SQLite format 3", "an SQLite database"),
)
"""How files begin that are no list of rows, and what they are."""
_TURNS = ("conversations", "messages")
"""Keys of a row whose value is a list of objects."""
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Where JSON writes a character in halves, of which one may be missing."""


def _zstd(content: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())


_COMPRESSED: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", gzip.decompress),
    (b"BZh", bz2.decompress),
    (b"\xfd7zXZ\x00", lzma.decompress),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


def read_rows(path: Path) -> pd.DataFrame:
    """Rows of a file of parquet, JSON (lines, or an array), CSV or with tabs or semicolons.

    Files may be compressed (gzip, bzip2, xz, zstd, or a zip of one file), and text may be UTF-8, or
    UTF-16 or 32 with a mark of its byte order. Raises ValueError, with the file and the line, for
    what is damaged or is something else.
    """
    try:
        name, content = _unpacked(path.name.lower(), inputs.read(path))
        if not content:
            raise ValueError("it is empty")
        if content.startswith(b"PAR1") or name.endswith((".parquet", ".pq")):
            return pd.read_parquet(BytesIO(content))
        text = _text(content)
        first = text.lstrip()[:1]
        if first == "<":
            raise ValueError("it begins like HTML or XML, and is no list of requests")
        is_json = (
            name.endswith(_JSON) or first == "{" or (first == "[" and not name.endswith(_TABLE))
        )
        if not is_json:
            return _read_csv(text)
    # Of a compressed file that ends early, or is damaged further in, too.
    except (
        *(OSError, ValueError, OverflowError, EOFError, zlib.error, lzma.LZMAError),
        *(zipfile.BadZipFile, pa.ArrowException, RuntimeError, csv.Error),
    ) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return _read_json(path, text)


def _unpacked(name: str, content: bytes) -> tuple[str, bytes]:
    """A file's name and content without compression."""
    for mark, unpack in _COMPRESSED:
        if content.startswith(mark):
            return name.rpartition(".")[0], unpack(content)
    if not content.startswith(b"PK\x03\x04"):
        return name, content
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = [it for it in archive.namelist() if not it.endswith("/")]
        names = [it for it in names if not it.startswith("__MACOSX/")]
        if "[Content_Types].xml" in names:
            raise ValueError("it is a workbook of Excel; save its sheet as CSV")
        if len(names) != 1:
            raise ValueError(f"it is an archive of {len(names)} files; give one of them")
        return names[0].lower(), archive.read(names[0])


def _text(content: bytes) -> str:
    """The text of a file. Raises ValueError for what is none."""
    for mark, what in _OTHERS:
        if content.startswith(mark):
            raise ValueError(f"it is {what}, and no list of requests as CSV, JSON or parquet")
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8; save it as that ({error})") from None
    if "\0" in text:
        raise ValueError("it is no text: it has bytes of 0")
    return text


def _read_csv(text: str) -> pd.DataFrame:
    """Rows of a CSV. Raises ValueError for one with more fields than its header has names.

    pandas would take the first ones for an index, and every column for its neighbour. A column of
    row numbers without a name, as pandas writes it, is left out, as are empty columns without one.
    """
    lines = text.splitlines(keepends=True)
    said = re.fullmatch(r"sep=(.)\s*", lines[0])  # as Excel begins a file
    text = "".join(lines[1:]) if said else text
    header = next((line for line in text.splitlines() if line.strip()), "")
    mark = said[1] if said else max(_SEPARATORS, key=header.count)
    separator = mark if mark in header else r"\s+"
    names = next(csv.reader([header], delimiter=mark if mark in header else " "), [])
    names = [name.strip() for name in names]
    named = [name for name in names if name]
    if twice := [name for name in named if named.count(name) > 1]:
        raise ValueError(f"it has the column {twice[0]} twice")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            rows = pd.read_csv(
                StringIO(text),
                sep=separator,
                index_col=False,
                decimal="," if separator == ";" else ".",
                skipinitialspace=True,
            )
        except pd.errors.ParserWarning:
            raise ValueError("a row has more fields than the header has names") from None
    rows.columns = pd.Index([str(name).strip() for name in rows.columns])
    unnamed = [name for name in rows.columns if name.startswith("Unnamed: ")]
    first = rows.columns[0]
    numbers = rows[first].dtype.kind == "i" and rows[first].is_unique
    left = [name for name in unnamed if rows[name].isna().all() or (name == first and numbers)]
    return rows.drop(columns=left)


def _read_json(path: Path, text: str) -> pd.DataFrame:
    """Rows of JSON lines, of an array of objects, of an object that holds one, or of columns."""
    lines = [(number, line) for number, line in enumerate(io.StringIO(text, newline="\n"), 1)]
    lines = [(number, line.rstrip("\r\n")) for number, line in lines if line.strip()]
    # An object that is a line of its own is a row, unless the file is one object around the rows.
    if not (lines and lines[0][1].lstrip().startswith("{") and len(lines) > 1 and _is_whole(lines)):
        found = _document(path, text)
        if found is not None:
            return found
    return pd.DataFrame([_row_of(path, number, line) for number, line in lines])


def _is_whole(lines: list[tuple[int, str]]) -> bool:
    """Whether the first line is JSON by itself."""
    try:
        json.loads(lines[0][1])
    except (ValueError, RecursionError):
        return lines[1][1].lstrip().startswith("{")
    return True


def _document(path: Path, text: str) -> pd.DataFrame | None:
    """Rows of a text that is one document of JSON; None for one that is not, or has no rows."""
    try:
        found = json.loads(text, object_pairs_hook=without_twice)
    except RecursionError:
        raise ValueError(f"{path} cannot be read: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        if path.name.endswith(".json") and not error.msg.startswith("Extra data"):
            raise ValueError(f"{path} cannot be read: {error}") from error
        return None
    except ValueError:
        return None
    if isinstance(found, Mapping):
        lists = [key for key, value in found.items() if _are_objects(value)]
        if len(lists) == 1 and lists[0] not in _TURNS:
            found = found[lists[0]]
        elif found and (columns := _columns(found)) is not None:
            return columns
    if not _are_objects(found):
        return None
    return pd.DataFrame([_checked(path, f"item {n}", it) for n, it in enumerate(found, 1)])


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(it, dict) for it in value)


def _columns(found: Mapping[str, Any]) -> pd.DataFrame | None:
    """Rows of an object of columns, as `pandas.DataFrame.to_json` writes one by default."""
    values = list(found.values())
    if {"columns", "data"} <= set(found):
        return pd.DataFrame(found["data"], columns=found["columns"])
    if len(values) > 1 and all(isinstance(value, dict) for value in values):
        return pd.DataFrame(found) if all(it.keys() == values[0].keys() for it in values) else None
    are_lists = len(values) > 1 and all(isinstance(value, list) for value in values)
    return pd.DataFrame(found) if are_lists and len({len(it) for it in values}) == 1 else None


def _row_of(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line, object_pairs_hook=without_twice)
    except RecursionError:
        raise ValueError(f"{path} line {number} is nested too deeply: {line[:60]!r}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} line {number} is not JSON: {line[:60]!r}") from error
    except ValueError as error:
        raise ValueError(f"{path} line {number}: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"{path} line {number} is not an object: {line[:60]!r}")
    return _checked(path, f"line {number}", row) if _LONE_SURROGATE.search(line) else row


def _checked(path: Path, place: str, row: dict[str, object]) -> dict[str, object]:
    """A row whose text can be written again. Raises ValueError for one that has half of one."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} {place} holds half a character: {str(row)[:60]!r}") from None
    return row
