"""Training: splits, two phases, a planted signal, and the command."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make setup-train")
for needed in ("transformers", "sklearn"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: make setup-train")

from harness.predictors.empirical import Empirical  # noqa: E402
from harness.predictors.proxy_card import CARD, FIELDS  # noqa: E402
from harness.predictors.proxy_heads import lengths_of  # noqa: E402
from harness.predictors.proxy_model import (  # noqa: E402
    ids_of,
    load,
    states_of,
)
from harness.tools.training import __main__ as command  # noqa: E402
from harness.tools.training import training  # noqa: E402
from harness.tools.training.bases import scratch  # noqa: E402
from harness.tools.training.data import ANSWERS_OF, Splits, read_rows, split_rows  # noqa: E402
from harness.tools.training.runs import TrainingPlan, run  # noqa: E402
from harness.tools.training.scores import baselines, latency, scores, timed  # noqa: E402
from harness.tools.training.training import EncodedSplit, TrainingSettings, train  # noqa: E402

PLANTED = {"brief": 10, "short": 40, "plain": 90, "long": 200, "endless": 400}


def rows(count: int) -> pd.DataFrame:
    """Prompts whose first word says how long the answer is, up to a tenth."""
    rng = np.random.default_rng(3)
    words = rng.choice(list(PLANTED), count, p=[0.25, 0.25, 0.25, 0.2, 0.05])
    about = rng.integers(0, 40, (count, 3))
    prompts = [
        f"{w} text on {' '.join(f'x{n}' for n in a)}" for w, a in zip(words, about, strict=True)
    ]
    tokens = [int(PLANTED[w] * rng.uniform(0.9, 1.1)) for w in words]
    size = rng.integers(4, 20, count)
    return pd.DataFrame(
        {"prompt": prompts, "tokens": tokens, "prompt_tokens": size, "source": "made up"}
    )


def settings(**changes: Any) -> TrainingSettings:
    """Few and large steps."""
    usual: dict[str, Any] = {
        "epochs": 6,
        "head_epochs": 10,
        "encoder_rate": 2e-3,
        "head_rate": 2e-3,
        "second_rate": 2e-3,
        "batch": 16,
        "patience": 3,
        "most_s": 600.0,
        "seed": 0,
    }
    return TrainingSettings(**(usual | changes))


def tiny(splits: Splits) -> tuple[Any, Any, Any]:
    """A base of one layer."""
    torch.manual_seed(0)
    return scratch(list(splits.train["prompt"]), layers=1, width=32, vocabulary=200)


def trained(
    heads: list[str], count: int = 60, **changes: Any
) -> tuple[Any, tuple[dict[str, Any], dict[str, list[float]]], tuple[EncodedSplit, EncodedSplit]]:
    """Encoder and layers after a short training."""
    splits = split_rows(rows(count), {}, seed=0, most_rows=None)
    encoder, tokenizer, frame = tiny(splits)
    parts = tuple(
        EncodedSplit.of(ids_of(tokenizer, frame, list(of["prompt"])), of["tokens"].to_numpy())
        for of in (splits.train, splits.validation)
    )
    lengths = lengths_of(splits.train["tokens"].to_numpy())
    both = (parts[0], parts[1])
    return encoder, train(encoder, frame, heads, both, lengths, settings(**changes)), both


def test_no_prompt_is_in_two_splits() -> None:
    base = rows(200)
    shouted = base.assign(prompt=base["prompt"].str.upper() + "  ")
    splits = split_rows(pd.concat([base, shouted]), {"f": "0"}, seed=1, most_rows=None)
    parts = [
        {" ".join(p.lower().split()) for p in part["prompt"]}
        for part in (splits.train, splits.validation, splits.test)
    ]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert sum(splits.sizes.values()) == len(set().union(*parts))
    assert splits.sizes["train"] == pytest.approx(3 * splits.sizes["test"], abs=3)
    again = split_rows(pd.concat([base, shouted]), {"f": "0"}, seed=2, most_rows=None)
    assert list(again.test["prompt"]) != list(splits.test["prompt"])


def test_answers_of_one_token_and_of_more_than_511_are_left_out() -> None:
    some = rows(30).assign(tokens=[1, 512, *range(2, 30)])
    splits = split_rows(some, {}, seed=0, most_rows=20)
    kept = pd.concat([splits.train, splits.validation, splits.test])["tokens"]
    assert len(kept) == 20
    assert kept.between(2, 511).all()


def test_the_second_phase_leaves_the_encoder_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before: dict[str, Any] = {}
    real = training._head_only

    def noting(name: str, layers: Any, *rest: Any) -> list[float]:
        before.update({k: v.clone() for k, v in encoders[-1].state_dict().items()})
        heads.append({k: v.clone() for k, v in layers.state_dict().items()})
        return real(name, layers, *rest)

    encoders: list[Any] = []
    heads: list[dict[str, Any]] = []
    phase = training._all_weights

    def first(encoder: Any, *rest: Any) -> list[float]:
        encoders.append(encoder)
        start = {k: v.clone() for k, v in encoder.state_dict().items()}
        found = phase(encoder, *rest)
        assert any(not torch.equal(v, start[k]) for k, v in encoder.state_dict().items())
        return found

    monkeypatch.setattr(training, "_head_only", noting)
    monkeypatch.setattr(training, "_all_weights", first)
    encoder, (layers, _), _ = trained(["reg_mse"], epochs=1)
    assert all(torch.equal(v, before[k]) for k, v in encoder.state_dict().items())
    after = layers["reg_mse"].state_dict()
    assert any(not torch.equal(v, heads[0][k]) for k, v in after.items())
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_same_seed_same_weights() -> None:
    one, two, other = (
        trained(["reg_l1", "pair"], epochs=1, head_epochs=2, seed=seed) for seed in (0, 0, 1)
    )
    for first, second in zip(one[0].parameters(), two[0].parameters(), strict=True):
        assert torch.equal(first, second)
    for name in ("reg_l1", "pair"):
        pairs = zip(one[1][0][name].parameters(), two[1][0][name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    pairs = zip(one[0].parameters(), other[0].parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_the_time_limit_ends_the_first_phase() -> None:
    _, (_, history), _ = trained(["reg_l1"], epochs=1000, most_s=1e-6)
    assert len(history["all"]) == 1


def test_scores_by_hand() -> None:
    """Two of four in the right class; F1 1 and 2/3 for classes that are ever right, else 0."""
    lengths = lengths_of(np.arange(1, 1001))
    truth, found = np.array([10, 300, 600, 995]), np.array([20, 310, 320, 800])
    got = scores(truth, found, lengths, "reg_l1")
    assert got["accuracy"] == 0.5
    assert got["mae_tokens"] == pytest.approx((10 + 10 + 280 + 195) / 4, rel=1e-3)
    assert got["macro_f1"] == pytest.approx((1 + 2 / 3 + 0 + 0 + 0) / 5, abs=1e-3)
    assert got["spearman"] == 1.0
    assert scores(truth, found, lengths, "bin")["classes"] == 2
    assert scores(truth, np.full(4, 7), lengths)["spearman"] == 0.0


def test_latency_is_of_every_single_prediction() -> None:
    asked: list[int] = []
    seconds = timed(asked.append, list(range(12)))
    assert len(asked) == 22
    assert latency(seconds)["count"] == 12
    assert latency(np.array([1.0, 3.0]))["mean"] == 2.0
    assert latency(np.array([1.0, 3.0]))["max"] == 3.0


@pytest.mark.slow
def test_a_planted_signal_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = split_rows(rows(400), {"made/up.parquet": "0" * 64}, seed=0, most_rows=None)
    monkeypatch.setattr("harness.tools.training.runs.base_of", lambda *_: tiny(splits))
    plan = TrainingPlan(
        base="scratch",
        heads=["reg_l1", "cls", "bin", "pair"],
        separate=False,
        settings=settings(epochs=12, patience=4),
        out=tmp_path / "out",
        profiles=tmp_path / "tables",
    )
    found = {row["name"]: row for row in run(splits, plan)}
    lengths = lengths_of(splits.train["tokens"].to_numpy())
    constant = next(baselines(splits, lengths, 5, 0))
    for name, row in found.items():
        # Of two classes nothing but which half can be known.
        assert row["mae_tokens"] < constant["mae_tokens"] * (0.95 if name == "bin" else 0.6), name
        assert row["spearman"] > 0.6
    card = json.loads((tmp_path / "out" / "cls" / CARD).read_text())
    assert set(FIELDS) <= set(card)
    assert card["metrics"]["accuracy"] == found["cls"]["accuracy"]
    assert card["split"] == splits.sizes
    assert card["data"] == {"made/up.parquet": "0" * 64}
    assert card["shared_encoder"] is True
    assert set(card["latency_s"]) == {"mean", "p50", "p99", "max", "count"}
    assert "torch" in card["versions"]
    kept = load(tmp_path / "out" / "reg_l1")
    texts = list(splits.test["prompt"])
    states = states_of(kept.encoder, kept.frame, ids_of(kept.tokenizer, kept.frame, texts))
    truth = splits.test["tokens"].to_numpy()
    again = scores(truth, kept.tokens_of(states), lengths_of(splits.train["tokens"].to_numpy()))
    assert again["mae_tokens"] == found["reg_l1"]["mae_tokens"]
    assert asdict(kept.lengths)["class_bounds_tokens"] == list(lengths.class_bounds_tokens)
    monkeypatch.setattr("harness.predictors.empirical.PREDICTORS", tmp_path / "tables")
    for name in found:
        Empirical(profile=f"proxy_{name}")


def data_folder(folder: Path) -> Path:
    """The files that the command reads, small."""
    made = rows(240)
    for name, part in (
        ("alpaca/prompts", made[:80]),
        ("gpteacher/prompts", made[80:160]),
        ("no_robots/test_prompts", made[160:200]),
        ("alpaca_eval/prompts", made[200:]),
    ):
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        given = part.rename(columns={"tokens": "response_tokens"}).assign(
            prompt_id=range(len(part))
        )
        given.to_parquet(path)
    lengths = pd.DataFrame(
        {"model": ANSWERS_OF, "prompt_id": range(40), "output_tokens": made["tokens"][200:]}
    )
    lengths.to_parquet(folder / "alpaca_eval" / "lengths.parquet")
    return folder


def test_rows_of_all_sources_are_read(tmp_path: Path) -> None:
    found, files = read_rows(data_folder(tmp_path))
    assert len(found) == 240
    assert set(found["source"]) == {"alpaca", "gpteacher", "no_robots", "alpaca_eval"}
    assert list(found["tokens"].astype(int)) == list(rows(240)["tokens"])
    assert all(len(digest) == 64 for digest in files.values())
    (tmp_path / "alpaca" / "prompts.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="cannot be read"):
        read_rows(tmp_path)


@pytest.mark.slow
def test_the_command_writes_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = split_rows(rows(240), {}, seed=0, most_rows=None)
    monkeypatch.setattr("harness.tools.training.runs.base_of", lambda *_: tiny(splits))
    given = ["--data", str(data_folder(tmp_path / "data")), "--base", "scratch", "--epochs", "1"]
    given += [
        "--out",
        str(tmp_path),
        "--profiles",
        str(tmp_path / "profiles"),
        "--heads",
        "reg_l1",
        "pair",
    ]
    assert command.main([*given, "--separate"]) == 0
    content = json.loads((tmp_path / "summary.json").read_text())
    assert [row["name"] for row in content["heads"]] == ["reg_l1", "pair"]
    assert content["shared_encoder"] is False
    assert len(content["baselines"]) == 4
    assert "spearman" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data", "nowhere"], "there is no alpaca/prompts.parquet in the data folder 'nowhere'"),
        (["--heads", "bort"], "there is no head bort"),
        (["--minutes", "0"], "--minutes is 0.0, it must be positive"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(given) == 2
    assert said in capsys.readouterr().err


def test_missing_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.predictors.proxy_card.find_spec", lambda name: None)
    assert command.main([]) == 2
    assert "make setup-train" in capsys.readouterr().err
