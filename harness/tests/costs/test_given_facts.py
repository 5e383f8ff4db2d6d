"""Facts by hand give what the config of the same model gives, and say so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.config.paths import ROOT
from harness.costs.model_facts import ModelFacts, matrices_of, model_facts
from harness.tests.support.cases import CASES

EXAMPLE = ROOT / "scenarios" / "models" / "by-hand" / "facts.yaml"


def _given(tmp_path: Path, **change: object) -> ModelFacts:
    facts: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    path = tmp_path / "facts.yaml"
    kept = {key: value for key, value in (facts | change).items() if value is not None}
    path.write_text(yaml.safe_dump(kept), encoding="utf-8")
    return model_facts(str(path))


def test_the_example_is_llama_3_1_8b() -> None:
    given = model_facts(str(EXAMPLE))
    config = model_facts(str(CASES / "models" / "modelopt_fp8" / "config.json"))
    as_fp8 = (1.0, 1.0, 1, "fp8", "fp8", 0)
    assert (config.linear_bytes, config.expert_bytes, config.kv_number_bytes) == as_fp8[:3]
    assert given.parameters == config.parameters
    assert matrices_of(given)[:3] == matrices_of(config)[:3]
    assert given.assumptions == ("facts of facts.yaml were given by hand",)


def test_bytes_follow_from_the_format_or_are_given(tmp_path: Path) -> None:
    assert _given(tmp_path, weight_format="fp8").weight_bytes == 9_081_200_640
    (tmp_path / "other").mkdir()
    given = _given(tmp_path / "other", weight_bytes=6_000_000_000)
    assert given.weight_bytes == 6_000_000_000


def test_windows_and_states_are_those_of_so_many_layers(tmp_path: Path) -> None:
    facts = _given(
        tmp_path, windowed_layers=8, window_tokens=1024, state_layers=20, state_bytes=40_000_000
    )
    assert facts.state_bytes == 40_000_000
    assert facts.kv_bytes(10_000) == 4096 * (4 * 10_000 + 8 * 1024)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hiden_size": 1}, "there is no key hiden_size, which is 1"),
        ({"layers": None}, "layers is missing"),
        ({"layers": "many"}, "layers='many': it must be a whole number"),
        ({"kv_heads": 5}, "5 kv_heads cannot share 32 heads"),
        ({"parameters": 1000}, "parameters=1000, the layers alone have 6979321856"),
        ({"weight_bytes": 1.0}, "weight_bytes=1 are "),
        ({"windowed_layers": 3}, "windowed_layers and window_tokens go together"),
        ({"experts": 8}, "experts, experts_per_token and dense_layers do not go together"),
        ({"weight_format": "fp9"}, "weight_format='fp9': it must be one of bf16, fp8"),
    ],
)
def test_what_no_model_has_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        _given(tmp_path, **change)
    assert str(raised.value).startswith(str(tmp_path))
