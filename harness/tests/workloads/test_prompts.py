import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest

from harness.tests.support.data import DATA
from harness.tools.fitting.lengths import tokens_per_word, words_file
from harness.tools.fitting.stored import as_text
from harness.workloads.ecdf import LENGTHS
from harness.workloads.prompts import PromptLengths, PromptSource
from harness.workloads.row_files import read_rows

STORED = LENGTHS.parent / "tokens_per_word.json"
REVISION = "0123456789abcdef" * 2 + "01234567"
HUB = f"some/prompts@{REVISION}"
RATIO = json.loads(STORED.read_text())["tokens_per_word"]


def source(name: str, profile: str = "mixinstruct_prompts") -> PromptSource:
    return PromptSource(source=name, profile=profile, hub_dataset=HUB, hub_split="test")


def draw(name: str, count: int, seed: int = 0) -> PromptLengths:
    return source(name).draw(count, np.random.default_rng(seed))


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "prompts.jsonl"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_a_profile_is_sampled_with_its_digest() -> None:
    prompts = draw("profile", 5000)
    assert (prompts.tokens.min(), prompts.tokens.max()) == (5, 127)
    assert prompts.tokens.mean() == pytest.approx(21, rel=0.05)
    stored = (LENGTHS / "mixinstruct_prompts.json").read_bytes()
    assert prompts.datasets == {
        "harness/profiles/lengths/mixinstruct_prompts.json": hashlib.sha256(stored).hexdigest()
    }


def test_a_file_of_counts_is_drawn_without_repetition(tmp_path: Path) -> None:
    path = tmp_path / "prompts.parquet"
    pd.DataFrame({"prompt_tokens": range(1, 51), "other": "x"}).to_parquet(path)
    prompts = draw(str(path), 50)
    assert sorted(prompts.tokens) == list(range(1, 51))
    assert list(prompts.tokens) != list(range(1, 51))
    assert list(draw(str(path), 20, seed=1).tokens) != list(prompts.tokens[:20])
    assert prompts.datasets[str(path)] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_text_is_counted_by_words(written: Callable[[str], str]) -> None:
    """Ten words, and two with three: 1.40554 tokens a word."""
    ten = " ".join("word" for _ in range(10))
    name = written(
        json.dumps({"instruction": ten, "input": None})
        + "\n\n"
        + json.dumps({"instruction": "a b", "input": " c\nd e "})
        + "\n"
    )
    assert sorted(draw(name, 2).tokens) == [round(5 * RATIO), round(10 * RATIO)]


def test_a_whole_prompt_is_not_counted_with_its_parts(written: Callable[[str], str]) -> None:
    row = {"prompt": "a b c d", "instruction": "a b", "input": "c d"}
    assert list(draw(written(json.dumps(row)), 1).tokens) == [round(4 * RATIO)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"prompt_tokens": 5}\n{"prompt_tokens": 7\n', "line 2 is not JSON: '{\"prompt_tokens"),
        ("[1, 2]\n", "line 1 is not an object: '[1, 2]'"),
        ('{"prompt_tokens": 5}\n{"prompt_tokens": 0}\n', "row 2: prompt_tokens is 0"),
        ('{"prompt_tokens": 5}\n{"prompt_tokens": 1.5}\n', "row 2: prompt_tokens is 1.5"),
        ('{"prompt": "a"}\n{"prompt": " "}\n', "row 2: prompt is ' '"),
        ('{"text": "a"}\n{"text": "b"}\n', "lacks the columns prompt_tokens, prompt, "),
        ("\n\n", "has no rows"),
        ('{"prompt_tokens": 5}\n', "has 1 prompts, 2 were asked for"),
    ],
)
def test_a_damaged_file_is_one_sentence_that_names_it(
    written: Callable[[str], str], text: str, said: str
) -> None:
    name = written(text)
    with pytest.raises(ValueError, match=r"\.jsonl ") as raised:
        draw(name, 2)
    assert str(raised.value).startswith(f"{name} {said}")
    assert "\n" not in str(raised.value)


def test_more_fields_than_names_do_not_shift_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5,7\n1,11,6,8\n")
    with pytest.raises(ValueError, match=r"wide.csv cannot be read: a row has more fields"):
        read_rows(path)


def test_a_mark_of_byte_order_is_no_part_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_tokens": 7}\n', encoding="utf-8-sig")
    assert list(draw(str(path), 1).tokens) == [7]


def test_what_is_no_text_file_says_so(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", b"\xff\xfe\xfa"), ("a.parquet", b"junk")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            draw(str(tmp_path / name), 1)


def test_a_missing_file_and_an_unknown_profile_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="source=/no/such is neither profile, hub nor"):
        source("/no/such")
    with pytest.raises(ValueError, match="is neither profile, hub nor a file"):
        source(str(tmp_path))
    with pytest.raises(ValueError, match="No length profile is called 'nope'"):
        source("profile", profile="nope")


def test_a_relative_path_stays_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt_tokens": 9}\n')
    monkeypatch.chdir(tmp_path)
    relative = source("a.jsonl")
    monkeypatch.chdir("/")
    assert list(relative.draw(1, np.random.default_rng(0)).tokens) == [9]


def test_the_hub_is_asked_for_the_revision_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Rows(dict[str, list[object]]):
        column_names = ("id", "instruction", "input")

    def load(name: str, split: str, revision: str) -> Rows:
        asked.append((name, split, revision))
        return Rows(id=[1, 2], instruction=["a b c", "d"], input=["", "e"])

    monkeypatch.setattr(datasets, "load_dataset", load)
    prompts = draw("hub", 2)
    assert asked == [("some/prompts", "test", REVISION)]
    assert sorted(prompts.tokens) == [round(2 * RATIO), round(3 * RATIO)]
    assert set(prompts.datasets) == {HUB, "harness/profiles/tokens_per_word.json"}


def test_an_unreachable_hub_names_the_command_that_gets_the_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(name: str, split: str, revision: str) -> SimpleNamespace:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ValueError, match="neither cached here nor to be had") as raised:
        draw("hub", 2)
    said = str(raised.value)
    assert "(ConnectionError)" in said
    assert said.endswith(
        f"""'import datasets; datasets.load_dataset("some/prompts", split="test", """
        f"""revision="{REVISION}")'"""
    )


def test_tokens_per_word_by_hand() -> None:
    """12 tokens over 8 words are 1.5; prompts of 2, 2 and 4 words are off by 1/2, 0 and 1/7."""
    found = tokens_per_word(np.array([2, 2, 4]), np.array([2, 3, 7]))
    assert found == {"tokens_per_word": 1.5, "error_median": 0.142857, "count": 3}


@pytest.mark.skipif(
    not (DATA / "alpaca").is_dir(), reason=f"the measurements are not in {DATA / 'alpaca'}"
)
def test_the_stored_ratio_is_reproduced_byte_for_byte() -> None:
    assert as_text(words_file(DATA)) == STORED.read_text()
