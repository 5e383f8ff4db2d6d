"""The simulated twin of a measured run: the engine as it was, at the speed of its machine."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import api
from harness.costs.iteration import iteration_seconds
from harness.runs.building import costs_of
from harness.runs.config import stored_configuration
from harness.runs.record import config_of
from harness.tools.fidelity.real_runs import as_resolved, twins
from harness.tools.fidelity.speed import Speed

WORDS = ("workload.model=tiny", "workload.requests=20", "workload.rate_per_s=null", "seed=0")
RESOLVED = {"kv_blocks": 100, "block_tokens": 32, "kv_bytes_per_token": 4096}
LIMITS = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}

BATCHES = {
    "prompts": [1, 0],
    "prompt_tokens": [100, 0],
    "attended": [1e4, 0.0],
    "decodes": [0, 8],
    "context_tokens": [0, 900],
    "longest_tokens": [0, 200],
}


@pytest.fixture(scope="module")
def like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a simulated run: a backlog on this project's own profile of a CPU."""
    results = tmp_path_factory.mktemp("results")
    words = ("hardware=cpu", "workload=synthetic", "policy=vllm", "predictor=none", *WORDS)
    rows = api.sweep(overrides=[*words, f"results={results}", "name=toy", "tracking=none"])
    return Path(str(rows["folder"].iloc[0]))


def measured(folder: Path, **about: Any) -> Path:
    """A folder of a measured run that kept how its engine was configured."""
    folder.mkdir()
    engines = {"tiny@0": {"tiny": RESOLVED | LIMITS | about}}
    (folder / "engines.json").write_text(json.dumps(engines))
    return folder


def test_a_twin_has_the_limits_and_the_kv_of_the_engine(like: Path, tmp_path: Path) -> None:
    plain = as_resolved(config_of(like), measured(tmp_path / "run"))
    assert {name: plain["engine"][name] for name in LIMITS} == LIMITS
    assert plain["hardware"]["kv_bytes"] == 100 * 32 * 4096
    assert plain["hardware"]["block_tokens"] == 32
    assert as_resolved(config_of(like), tmp_path / "none") == config_of(like)


def test_a_twin_at_half_the_speed_takes_twice_as_long(
    like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Designed batches took twice as long as profiled, and so does a backlog to the last answer."""
    run = measured(tmp_path / "run")
    table, rows = (
        costs_of(stored_configuration(config_of(like))).table("tiny", 1),
        pd.DataFrame(BATCHES),
    )
    whole_s = [
        iteration_seconds(table, int(p), int(t), int(t), a, int(d), int(c), int(most))
        for p, t, a, d, c, most in rows.to_numpy(float).tolist()
    ]
    rows = rows.assign(service="tiny", prepare_s=0.0, other_s=0.0, when="before")
    slow = rows.assign(forward_s=[2 * it for it in whole_s])
    pd.concat([slow, slow.assign(when="after")]).to_parquet(run / "speed.parquet")
    # As if the profile had been exact on these batches when it was measured.
    monkeypatch.setattr("harness.tools.fidelity.real_runs.reference_of", lambda *_: Speed(1.0, 1.0))
    found = {}
    for at_speed in (False, True):
        with twins({run: like}, at_speed=at_speed) as rows_of:
            found[at_speed] = rows_of[run]
            assert Path(str(rows_of[run]["folder"])).is_dir()
    assert found[True]["speed"] == {"tiny": pytest.approx({"prefill": 2.0, "decode": 2.0})}
    assert found[True]["inference_s"] == pytest.approx(2 * found[False]["inference_s"], rel=1e-6)


def test_groups_of_different_kv_have_no_twin(like: Path, tmp_path: Path) -> None:
    run = measured(tmp_path / "run")
    engines = {
        "a": {"tiny": RESOLVED | LIMITS},
        "b": {"tiny": RESOLVED | LIMITS | {"kv_blocks": 7}},
    }
    (run / "engines.json").write_text(json.dumps(engines))
    with pytest.raises(ValueError, match="its groups have"):
        as_resolved(config_of(like), run)
