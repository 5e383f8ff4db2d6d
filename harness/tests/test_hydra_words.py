"""Words for Hydra are read back as the values that they were made of."""

import math
import shutil
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness import run
from harness.config.hydra_words import literal, word
from harness.costs.model_names import model_of
from harness.runs.record import read_summaries
from harness.tests.support.cases import CASES
from harness.tests.support.configured import composed
from harness.tests.support.paths import HARD

PARSER = OverridesParser.create()
TEXTS = st.text(st.sampled_from("a0'\"\\${}[]()=,:#%~ \t\né"), max_size=12) | st.text(max_size=8)
KEYS = st.text(st.sampled_from("ab0\\:=, ./_-()[]{}"), min_size=1, max_size=6).map("k".__add__)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(PLAIN, lambda it: st.lists(it) | st.dictionaries(KEYS, it), max_leaves=6)


def read_back(one: str) -> object:
    """The value of a word `+a.b=VALUE`, resolved."""
    config = OmegaConf.create({"a": {}})
    value = PARSER.parse_override(one).value()
    OmegaConf.update(config, "a.b", value, merge=True, force_add=True)
    found = OmegaConf.to_container(config, resolve=True)
    assert isinstance(found, dict)
    return found["a"]["b"]


@given(VALUES)
def test_a_word_is_read_back_as_its_value(value: object) -> None:
    found = read_back(word("+a.b", value))
    assert found == value
    assert type(found) is type(value)


@given(VALUES)
def test_a_literal_is_what_omegaconf_resolves_to(value: object) -> None:
    found = OmegaConf.to_container(OmegaConf.create({"a": literal(value)}), resolve=True)
    assert found == {"a": value}


def test_values_of_no_word_are_refused() -> None:
    assert math.isnan(float(str(read_back(word("+a.b", math.nan)))))
    for key in ("0", "1e3", "null", "True", "nan", "é", 'a"b', ""):
        with pytest.raises(ValueError, match="Hydra has no spelling of the key"):
            word("a", {key: 1})
    with pytest.raises(TypeError, match="which no word can have"):
        word("a", object())


def test_a_configuration_has_any_path() -> None:
    with composed("workload=trace", word("workload.file", HARD), word("results", HARD)) as composer:
        found = composer.whole()
    assert (found.workload["file"], found.results) == (HARD, HARD)


def test_a_run_reads_and_writes_below_any_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / HARD.strip("/") / "[b] of"
    folder.mkdir(parents=True)
    trace, config = folder / "t [b] ~x.jsonl", folder / "config.json"
    trace.write_text(
        '{"arrival_s": 0.5, "prompt_tokens": 9, "output_tokens": 3}\n' * 3, encoding="utf-8"
    )
    shutil.copy(CASES / "models" / "llama-3.2-1b.json", config)
    given = {"workload.file": str(trace), "results": str(folder / "out")}
    matrix = word("+matrix", {"workload.model": [str(config)]})
    words = ("workload=trace", "hardware=h100_80g_8", "tracking=none", "workers=1", matrix)
    with composed(*words, *(word(key, value) for key, value in given.items())) as made:
        assert run.run(made) == 0
    rows = read_summaries(folder / "out" / "adhoc")
    assert rows["config.workload.file"].tolist() == [str(trace)]
    assert rows["config.workload.model"].tolist() == [str(config)]
    said = " ".join(capsys.readouterr().out.split())
    assert "t [b] ~x.jsonl: does not say" in said
    assert "([b] of tp1)" in said


@pytest.mark.parametrize("model", ["opt-13b", "/a~b/config.json", "/a/config~1.json"])
def test_the_model_of_a_service_may_have_a_tilde_in_its_path(model: str) -> None:
    assert model_of(model) == model_of(f"{model}~1") == model
