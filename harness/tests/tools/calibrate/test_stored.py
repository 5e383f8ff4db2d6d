from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from harness.config.paths import PROFILES
from harness.costs.iteration import expand, work_seconds
from harness.costs.model import PARTS
from harness.costs.profiles import profile_from
from harness.interface.entities import Work
from harness.tools.calibrate import raw
from harness.tools.calibrate.__main__ import main
from harness.tools.calibrate.stored import (
    SECONDS,
    are_settled,
    knots_of,
    mean_iterations,
    profile,
    received_s,
)

FACTS = {
    "model": "tiny",
    "gpu": "CPU",
    "engine": "made up",
    "block_tokens": 32,
    "kv_blocks": 400,
    "largest_graph_tokens": 0,
    "load_s": 3.0,
}
FIRST_S, MORE_S = 5e-4, 1e-4
BATCH = ["prompts", "prompt_tokens", "attended", "decodes", "context_tokens"]


def seconds_of(batches: pd.DataFrame, *, cliff_s: float = 0.0) -> NDArray[np.float64]:
    """Made-up costs of the kind that is fitted; `cliff_s` for more than 300 prompt tokens."""
    prompts = (1e-3 + 2e-4 * (batches["prompts"] - 1)).where(batches["prompts"] > 0, 0.0)
    decodes = (8e-5 * (batches["decodes"] - 1)).clip(lower=0.0)
    steps = cliff_s * (batches["prompt_tokens"] > 300)
    attended = 5e-8 * batches["attended"]
    context = 4e-7 * batches["context_tokens"]
    tokens = 3e-5 * batches["prompt_tokens"]
    return np.asarray(2e-3 + prompts + tokens + attended + decodes + context + steps)


def repetitions(*times: tuple[float, float], cliff_s: float = 0.0) -> pd.DataFrame:
    """Batches of prompts, of decodes and of both, so many times as slow: prompts, decodes only."""
    rng, made = np.random.default_rng(0), []
    for _ in range(400):
        prompts, decodes = (int(n) for n in rng.integers(0, [6, 129]))
        tokens = int(rng.integers(1, 400, prompts).sum())
        context = int(rng.integers(2, 700, decodes).sum())
        if prompts + decodes:
            longest = 700 if decodes else 0
            made.append((prompts, tokens, 30.0 * tokens, decodes, context, longest, prompts))
    batches = pd.DataFrame(made, columns=[*BATCH, "longest_tokens", "received"])
    taken_s = FIRST_S + MORE_S * (batches["received"] - 1)
    batches["received_s"] = taken_s.where(batches["received"] > 0, 0.0)
    batches["prepare_s"] = batches["other_s"] = 0.0
    whole_s, has_prompts = seconds_of(batches, cliff_s=cliff_s), batches["prompts"] > 0
    return pd.concat(
        [
            batches.assign(
                repetition=number, forward_s=whole_s * np.where(has_prompts, prefill, decode)
            )
            for number, (prefill, decode) in enumerate(times)
        ],
        ignore_index=True,
    )


def fitted(rows: pd.DataFrame, **facts: Any) -> NDArray[np.float64]:
    """Seconds of the first repetition's batches by the profile that is stored."""
    content = profile(rows, FACTS | facts)
    table = expand(profile_from(content, 1, content["tensor_parallel"]["1"]), PARTS)
    batches = rows[rows["repetition"] == 0]
    found = []
    for prompts, tokens, attended, decodes, context in batches[BATCH].to_numpy(np.float64):
        work = (int(prompts), int(tokens), int(tokens), float(attended), int(decodes), int(context))
        found.append(work_seconds(table, Work(*work)))
    return np.array(found)


def test_a_fit_gives_back_the_costs_it_was_made_from() -> None:
    rows = repetitions((1.0, 1.0), (1.0, 1.0))
    entry = profile(rows, FACTS)["tensor_parallel"]["1"]
    assert max(entry["error"].values()) < 1e-6
    assert entry["received_s"] == pytest.approx([FIRST_S, MORE_S])
    assert fitted(rows) == pytest.approx(seconds_of(rows[rows["repetition"] == 0]), rel=1e-3)


def test_totals_are_those_of_the_mean_repetition_for_each_class() -> None:
    """By hand: prompts take 1, 1.2, 1.4 times, mean 1.2; decodes 1, 1, 1.3 times, mean 1.1."""
    rows = repetitions((1.0, 1.0), (1.2, 1.0), (1.4, 1.3))
    first = rows[rows["repetition"] == 0]
    found, alone_s = fitted(rows), seconds_of(first)
    prompts = first["prompts"].to_numpy() > 0
    assert found[prompts].sum() == pytest.approx(1.2 * alone_s[prompts].sum(), rel=1e-3)
    assert found[~prompts].sum() == pytest.approx(1.1 * alone_s[~prompts].sum(), rel=1e-3)


def test_noise_that_is_never_negative_is_in_the_total() -> None:
    """A fit of relative errors alone would come out below the mean."""
    rows = repetitions(*[(1.0, 1.0)] * 4)
    slower = 1.0 + np.random.default_rng(1).exponential(0.3, len(rows))
    rows["forward_s"] *= slower
    measured_s = mean_iterations(rows)[SECONDS].sum(axis=1)
    assert fitted(rows).sum() == pytest.approx(measured_s.sum(), rel=1e-3)
    assert profile(rows, FACTS)["measured"]["factors"] == pytest.approx(
        {"decode": 1.0, "prefill": 1.0}, abs=0.01
    )


def test_a_pause_of_the_machine_is_left_out_and_counted() -> None:
    rows = repetitions(*[(1.0, 1.0)] * 4)
    rows["forward_s"] += np.where(rows.index == 500, 3.0, 0.0)
    content = profile(rows, FACTS)
    assert content["measured"]["pauses"] == 1
    assert content["measured"]["pauses_s"] == pytest.approx(3.0, abs=0.1)
    assert fitted(rows) == pytest.approx(seconds_of(rows[rows["repetition"] == 0]), rel=1e-3)


def test_decodes_that_a_request_leaves_or_has_left_are_not_settled() -> None:
    """A prompt, its batch of 2 for four iterations, then 1 for three, then another prompt."""
    means = pd.DataFrame(
        {"prompts": [2, 0, 0, 0, 0, 0, 0, 0, 1], "decodes": [0, 2, 2, 2, 2, 1, 1, 1, 1]}
    )
    found = are_settled(means).tolist()
    assert found == [True, False, True, True, False, False, True, True, True]
    assert are_settled(means.head(2)).all()


def test_the_largest_graph_is_a_step() -> None:
    rows = repetitions((1.0, 1.0), (1.0, 1.0), cliff_s=5e-3)
    first = rows[rows["repetition"] == 0]
    expected = seconds_of(first, cliff_s=5e-3)
    assert fitted(rows, largest_graph_tokens=300) == pytest.approx(expected, rel=1e-3)
    assert fitted(rows) != pytest.approx(expected, rel=0.02)


def test_taking_requests_in_by_hand() -> None:
    """Alone 0.5 ms; 11 at once 1.5 ms, so that each further one takes 0.1 ms."""
    rows = pd.DataFrame({"received": [1, 0, 1, 11], "received_s": [4e-4, 0.0, 6e-4, 15e-4]})
    assert received_s(rows) == pytest.approx((5e-4, 1e-4))


def test_repetitions_with_other_batches_are_refused() -> None:
    rows = repetitions((1.0, 1.0), (1.0, 1.0))
    rows.loc[rows.index[-1], "decodes"] += 1
    with pytest.raises(ValueError, match="other batches than the first"):
        profile(rows, FACTS)


def test_knots_end_where_the_measurements_do() -> None:
    rows = repetitions((1.0, 1.0))
    few = rows[rows["decodes"] <= 40]
    assert knots_of(few, 0).requests == (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("model", ["tiny", "small", "m100"])
def test_the_shipped_profiles_give_the_totals_that_were_measured(model: str) -> None:
    rows, facts = raw.read(PROFILES / "cpu_vllm" / f"{model}.parquet")
    means, seconds = mean_iterations(rows), fitted(rows, **facts)
    measured_s = means[SECONDS].sum(axis=1).to_numpy()
    prompts = means["prompts"].to_numpy() > 0
    for chosen in (prompts, ~prompts & are_settled(means).to_numpy()):
        assert seconds[chosen].sum() == pytest.approx(measured_s[chosen].sum(), rel=1e-3)


@pytest.mark.parametrize("model", ["tiny", "small", "m100"])
def test_a_refit_of_stored_repetitions_is_the_stored_profile(model: str, tmp_path: Path) -> None:
    stored = PROFILES / "cpu_vllm" / f"{model}.parquet"
    (tmp_path / stored.name).write_bytes(stored.read_bytes())
    assert stored.stat().st_size < 2 << 20
    assert main(["--refit", "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{model}.json").read_text() == stored.with_suffix(".json").read_text()


def test_seconds_are_kept_in_single_precision(tmp_path: Path) -> None:
    rows = repetitions((1.0, 1.0), (1.1, 1.0))
    raw.write(tmp_path / "tiny.parquet", rows, FACTS)
    read, facts = raw.read(tmp_path / "tiny.parquet")
    assert facts == FACTS
    assert profile(read, facts)["tensor_parallel"]["1"]["kv_blocks"] == 400
    pd.testing.assert_frame_equal(read, rows, rtol=1e-6, check_dtype=False)


def test_a_folder_without_repetitions_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--refit", "--out", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
