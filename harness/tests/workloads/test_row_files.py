"""Files as everyday tools write them: one table in every form, and what is no table."""

import bz2
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from harness.tests.support.recorded_requests import trace
from harness.workloads.row_files import read_rows

TABLE = pd.DataFrame(
    {"arrival_s": [0.0, 0.5, 1.25], "prompt_tokens": [300, 301, 302], "output_tokens": [20, 21, 22]}
)
CSV = TABLE.to_csv(index=False)


def _zip(text: str, *names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, text)
    return content.getvalue()


def _zstd(text: str) -> bytes:
    content = pa.BufferOutputStream()
    with pa.CompressedOutputStream(content, "zstd") as stream:
        stream.write(text.encode())
    return bytes(content.getvalue())


def _parquet(**changes: "pd.Series[Any]") -> bytes:
    content = io.BytesIO()
    TABLE.assign(**changes).to_parquet(content)
    return content.getvalue()


DATES = pd.to_datetime("2026-11-28 10:00") + pd.to_timedelta(TABLE["arrival_s"], unit="s")
FORMS: dict[str, bytes] = {
    "bz2.csv.bz2": bz2.compress(CSV.encode()),
    "xz.csv.xz": lzma.compress(CSV.encode()),
    "zip.zip": _zip(CSV, "a.csv"),
    "zst.csv.zst": _zstd(CSV),
    "crlf.csv": (CSV.replace("\n", "\r\n") + "\r\n\r\n").encode(),
    "quoted.csv": TABLE.to_csv(index=False, quoting=1).encode(),
    "blanks.csv": CSV.replace(",", " , ").encode(),
    "index.tsv": TABLE.to_csv(sep="\t").encode(),
    "semicolons.csv": TABLE.to_csv(sep=";", index=False, decimal=",").encode("utf-8-sig"),
    "points.csv": TABLE.to_csv(sep=";", index=False).encode(),
    "excel.csv": ("sep=;\n" + TABLE.to_csv(sep=";", index=False)).encode(),
    "floats.csv": TABLE.astype({"prompt_tokens": float}).to_csv(index=False).encode(),
    "utf16.csv": CSV.encode("utf-16"),
    "columns.json": TABLE.to_json().encode(),
    "lists.json": json.dumps(TABLE.to_dict("list")).encode(),
    "split.json": TABLE.to_json(orient="split").encode(),
    "array.jsonl": TABLE.to_json(orient="records").encode(),
    "inside.json": json.dumps({"requests": TABLE.to_dict("records"), "n": 3}, indent=1).encode(),
    "nullable.parquet": _parquet(prompt_tokens=TABLE["prompt_tokens"].astype("Int64")),
    "arrow.parquet": _parquet(arrival_s=TABLE["arrival_s"].astype("float64[pyarrow]")),
    "decimals.parquet": _parquet(arrival_s=TABLE["arrival_s"].astype(str)),
    "dates.parquet": _parquet(arrival_s=DATES),
    "zone.parquet": _parquet(arrival_s=DATES.dt.tz_localize("Europe/Berlin")),
    "iso.csv": TABLE.assign(arrival_s=DATES.astype(str)).to_csv(index=False).encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_table_has_the_same_requests(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name])
    load = trace(tmp_path / name).build(0)
    assert load.arrival_s == pytest.approx([0.0, 0.5, 1.25])
    assert load.prompt_tokens.tolist() == [300, 301, 302]
    assert load.output_tokens.tolist() == [20, 21, 22]


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "cannot be read: it is empty"),
    "header.csv": (CSV.splitlines()[0].encode(), "has no rows, only the columns arrival_s, pro"),
    "twice.csv": (
        b"arrival_s,prompt_tokens,prompt_tokens\n0,1,1\n",
        "has the column prompt_",
    ),
    "page.csv": (b"<!DOCTYPE html>", "it begins like HTML or XML"),
    "paper.csv": (b"%PDF-1.7", "it is a PDF, and no list of requests"),
    "binary.csv": (bytes(range(256)), "it is no text in UTF-8"),
    "latin.csv": (f"{CSV}Größe".encode("latin-1"), "it is no text in UTF-8; save it as that"),
    "two.zip": (_zip(CSV, "a.csv", "b.csv"), "it is an archive of 2 files; give one of them"),
    "book.xlsx": (_zip("", "[Content_Types].xml"), "it is a workbook of Excel; save its sheet"),
    "half.csv": (
        CSV.replace("301", "300.5").encode(),
        "prompt_tokens 300.5 is no number",
    ),
    "below.csv": (CSV.replace("301", "-1").encode(), "row 2: prompt_tokens -1 must be at least 1"),
    "huge.csv": (CSV.replace("301", "1e30").encode(), r"prompt_tokens 1e\+30 is no number of to"),
    "infinite.csv": (CSV.replace("0.5", "inf").encode(), "row 2: arrival_s inf is no number"),
    "capital.csv": (CSV.replace("arr", "Arr").encode(), r"no columns Arrival_s \(arrival_s\?\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_of_requests_is_said(name: str, tmp_path: Path) -> None:
    content, said = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        trace(tmp_path / name)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; give one file of it"):
        trace(tmp_path)


def test_an_unnamed_column_is_left_out_only_where_it_numbers_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",b\n7,1\n5,2\n")
    assert list(read_rows(tmp_path / "a.csv").columns) == ["b"]
    (tmp_path / "a.csv").write_text(",b\n7.5,1\n5,2\n")
    assert list(read_rows(tmp_path / "a.csv").columns) == ["Unnamed: 0", "b"]


def test_lists_are_read_as_arrays_and_as_text(written: Callable[[str, str], Path]) -> None:
    table = pd.DataFrame(
        {
            "timestamp": [0, 500],
            "input_length": [1100, 1100],
            "output_length": 20,
            "hash_ids": [[1, 2, 3], [1, 2, 4]],
        }
    )
    file = written("a.csv", table.to_csv(index=False))
    assert trace(file).build(0).prefix_tokens.tolist() == [0, 1024]
    table.to_parquet(file.with_suffix(".parquet"))
    assert np.array_equal(trace(file.with_suffix(".parquet")).build(0).prefix_tokens, [0, 1024])
