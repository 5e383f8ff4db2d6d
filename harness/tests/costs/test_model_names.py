"""A model is named as people name theirs: a file, a folder, a cache, a short name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.costs.model_facts import model_facts
from harness.costs.model_names import model_of, shown_name
from harness.tests.support.cases import CASES

TEXT = (CASES / "models" / "qwen3-8b.json").read_text(encoding="utf-8")
FP8 = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
ODD = "a b/c=d/[e]/q'x/~f~g/ü"
Place = Callable[[str], Path]


@pytest.fixture
def placed(tmp_path: Path) -> Place:
    """Writes the config of Qwen3-8B at a place below a folder of the test."""

    def place(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT, encoding="utf-8")
        return path

    return place


@pytest.fixture
def cached(placed: Place) -> Path:
    """A folder of the cache of Hugging Face, whose config is a link, with a quantization beside."""
    blob = placed("hub/models--Qwen--Qwen3-8B/blobs/0f1e2d")
    snapshot = blob.parents[1] / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/0f1e2d")
    (snapshot / "hf_quant_config.json").write_text(json.dumps(FP8), encoding="utf-8")
    return blob.parents[1]


@pytest.mark.parametrize("place", ["snapshots/abc/config.json", "snapshots/abc", ""])
def test_links_of_a_cache_are_not_resolved(place: str, cached: Path) -> None:
    facts = model_facts(str(cached / place))
    assert facts.name == str(cached / "snapshots" / "abc" / "config.json")
    assert (facts.parameters, facts.linear_format) == (8_190_735_360, "fp8")
    assert shown_name(facts.name) == "Qwen3-8B"


def test_the_newest_snapshot_is_the_one_that_is_named(cached: Path, placed: Place) -> None:
    newer = placed("hub/models--Qwen--Qwen3-8B/snapshots/def/config.json")
    with pytest.raises(ValueError, match=r"has 2 snapshots with a config.json \(abc, def\)"):
        model_facts(str(cached))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("def\n", encoding="utf-8")
    assert model_facts(str(cached)).name == str(newer)


@pytest.mark.parametrize("tag", ["", "~1", "~slow"])
def test_letters_of_a_path_do_not_split_it(tag: str, placed: Place) -> None:
    path = placed(f"{ODD}/config.json")
    assert model_of(f"{path}{tag}") == str(path)
    assert model_facts(f"{path}{tag}").name == model_facts(str(path.parent)).name == str(path)
    assert model_of(f"opt-13b{tag}") == "opt-13b"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen/Qwen3-8B", "is no file here and nothing is downloaded: give the path"),
        ("meta-llama/Llama-2-7b-hf", "known short names close to it: Llama-2-7b-hf, "),
        ("x/model.gguf", "x/model.gguf holds weights: give the path"),
        ("/nowhere/at/all", "/nowhere/at/all is no file or folder$"),
        ("/", "^/ has no config.json: give the path"),
        ("lama-2-7b", "^No model is called 'lama-2-7b'; closest: llama-7b, .{0,60}$"),
        ("deepseek-v3", "^No model is called 'deepseek-v3': give scenarios/models/deepseek-v3$"),
        ("qqqq", "^No model is called 'qqqq'; known: the names of harness/profiles/models.json"),
    ],
)
def test_a_name_without_a_config_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model_facts(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_dim": None}, "has no hidden_dim: give the path of the model's config.json"),
        ({"lora": {"rank": 8}}, "the key lora is not known in Mistral's own format"),
    ],
)
def test_params_that_are_not_known_are_refused(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    params = json.loads((CASES / "models" / "params.json").read_text(encoding="utf-8"))
    path = tmp_path / "params.json"
    path.write_text(json.dumps(params | change), encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        model_facts(str(path))
