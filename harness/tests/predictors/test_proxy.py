"""Proxy models: heads by hand, texts, checkpoints, and the predictor that asks them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make setup-train")
pytest.importorskip("transformers", reason="transformers is not installed: make setup-train")

from harness.interface.entities import RequestId  # noqa: E402
from harness.predictors.proxy import Proxy  # noqa: E402
from harness.predictors.proxy_card import CARD, FIELDS, WEIGHTS  # noqa: E402
from harness.predictors.proxy_heads import (  # noqa: E402
    HEADS,
    Reference,
    TrainingLengths,
    decoded,
    lengths_of,
    loss,
    new_layers,
)
from harness.predictors.proxy_model import ProxyModel, ids_of, load, padded, save, states_of  # noqa: E402  # noqa: E402
from harness.tests.support.serving import serve, workload  # noqa: E402
from harness.tools.training.bases import base_of, scratch  # noqa: E402
from harness.workloads.workload import Workload  # noqa: E402

WORDS = [f"w{i}" for i in range(60)]
TEXTS = [" ".join(WORDS[i % 60] for i in range(n)) for n in (3, 7, 40)]
LENGTHS = TrainingLengths(
    class_bounds_tokens=[10, 20, 30, 40],
    class_tokens=[5, 15, 25, 35, 50],
    class_weights=[1.0, 1.0, 2.0, 1.0, 1.0],
    half_bound_tokens=20,
    half_tokens=[8, 33],
    middle_tokens=20.0,
    spread_tokens=10.0,
)


def of(head: str, output: list[list[float]], tokens: list[int]) -> float:
    """Loss of a batch."""
    return float(loss(HEADS[head], torch.tensor(output), torch.tensor(tokens), LENGTHS))


def made(head: str, seed: int = 0) -> ProxyModel:
    """A tiny untrained model."""
    torch.manual_seed(seed)
    encoder, tokenizer, frame = scratch(WORDS * 3, layers=1, width=32, vocabulary=150)
    reference = Reference([0.0, 0.1], [5, 50]) if head == "pair" else None
    layers = new_layers(32, HEADS[head]).eval()
    return ProxyModel(head, encoder.eval(), layers, tokenizer, frame, LENGTHS, reference)


def saved(head: str, folder: Path) -> ProxyModel:
    """The same, kept with a card."""
    model = made(head)
    save(model, folder, {name: {} for name in FIELDS})
    return model


def test_regression_losses_by_hand() -> None:
    """Lengths 30 and 10 are 1 and -1 spreads from the middle; the outputs are off by 1 and 3."""
    assert of("reg_l1", [[2.0], [2.0]], [30, 10]) == pytest.approx((1 + 3) / 2)
    assert of("reg_mse", [[2.0], [2.0]], [30, 10]) == pytest.approx((1 + 9) / 2)


def test_ordinal_losses_by_hand() -> None:
    """Lengths 5 and 39 are of the classes 0 and 3."""
    assert of("ord_l1", [[1.0], [1.0]], [5, 39]) == pytest.approx((1 + 2) / 2)
    assert of("ord_mse", [[1.0], [1.0]], [5, 39]) == pytest.approx((1 + 4) / 2)


def test_cross_entropy_weighs_classes() -> None:
    """Class 2 weighs twice: -(log p0 + 2 log p2) / 3 for a length of each."""
    output = [[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0, 0.0]]
    right = [np.exp(1) / (np.exp(1) + 4), np.exp(3) / (np.exp(3) + 4)]
    expected = -(np.log(right[0]) + 2 * np.log(right[1])) / 3
    assert of("cls", output, [5, 25]) == pytest.approx(expected, rel=1e-5)


def test_binary_and_pairwise_losses_by_hand() -> None:
    assert of("bin", [[0.0, 0.0]], [19]) == pytest.approx(np.log(2))
    assert of("bin", [[0.0, 1.0]], [20]) == pytest.approx(np.log1p(np.exp(-1)), rel=1e-5)
    # Both comparisons, of the first with the second and back, are right by 2.
    assert of("pair", [[2.0], [0.0]], [50, 10]) == pytest.approx(np.log1p(np.exp(-2)), rel=1e-5)
    assert of("pair", [[2.0], [0.0]], [10, 10]) == 0.0


def test_what_outputs_stand_for() -> None:
    def tokens(head: str, output: list[list[float]], reference: Reference | None = None) -> object:
        return decoded(HEADS[head], torch.tensor(output), LENGTHS, reference).tolist()

    assert tokens("reg_l1", [[1.0], [-9.0]]) == [30, 1]
    assert tokens("cls", [[0, 0, 0, 9.0, 0]]) == [35]
    assert tokens("ord_l1", [[-3.0], [1.6], [9.0]]) == [5, 25, 50]
    assert tokens("bin", [[0.0, 1.0], [1.0, 0.0]]) == [33, 8]
    reference = Reference([0.3, 0.1, 0.2, 0.0], [10, 20, 30, 40])
    assert tokens("pair", [[-1.0], [0.15], [1.0]], reference) == [10, 25, 40]
    with pytest.raises(ValueError, match="reference"):
        tokens("pair", [[0.0]])


def test_classes_come_from_the_training_lengths() -> None:
    found = lengths_of(np.arange(1, 1001))
    assert list(found.class_bounds_tokens) == [251, 500, 750, 990]
    assert found.class_of([250, 251, 989, 990]).tolist() == [0, 1, 3, 4]
    assert found.half_of([499, 500]).tolist() == [0, 1]
    assert found.class_weights[4] == pytest.approx(1000 / (5 * 11))
    with pytest.raises(ValueError, match="five classes"):
        lengths_of(np.full(50, 7))


def test_the_last_512_tokens_are_kept() -> None:
    _, tokenizer, frame = scratch(WORDS, layers=1, width=32, vocabulary=150)
    text = " ".join(WORDS[i % 60] for i in range(2000))
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    (ids,) = ids_of(tokenizer, frame, [text])
    assert len(whole) > 600
    assert ids == [frame.first, *whole[-510:], frame.last]
    assert ids_of(tokenizer, frame, ["w1"])[0][0] == frame.first


def test_padding_is_masked() -> None:
    ids, mask = padded([[1, 5, 2], [1, 2]], pad=9)
    assert ids.tolist() == [[1, 5, 2], [1, 2, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    model = made("reg_l1")
    rows = ids_of(model.tokenizer, model.frame, TEXTS)
    together = states_of(model.encoder, model.frame, rows)
    alone = torch.cat([states_of(model.encoder, model.frame, [row]) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("head", list(HEADS))
def test_a_checkpoint_predicts_what_the_model_did(head: str, tmp_path: Path) -> None:
    model = saved(head, tmp_path)
    again = load(tmp_path)
    assert again.tokens(TEXTS).tolist() == model.tokens(TEXTS).tolist()
    for name, value in model.layers.state_dict().items():
        assert torch.equal(value, again.layers.state_dict()[name])
    assert (again.frame, again.lengths) == (model.frame, model.lengths)


def test_what_is_no_checkpoint_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no checkpoint of a proxy model, card\.json"):
        Proxy(checkpoint=str(tmp_path), threads=1)
    saved("reg_l1", tmp_path)
    card = (tmp_path / CARD).read_text()
    (tmp_path / CARD).write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        Proxy(checkpoint=str(tmp_path), threads=1)
    (tmp_path / CARD).write_text('{"head": "cls"}')
    with pytest.raises(ValueError, match="does not say base"):
        Proxy(checkpoint=str(tmp_path), threads=1)
    (tmp_path / CARD).write_text(card)
    (tmp_path / WEIGHTS).write_bytes(b"broken")
    with pytest.raises(ValueError, match="is damaged"):
        Proxy(checkpoint=str(tmp_path), threads=1)


def test_a_base_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"--base=.*none must be NAME@REVISION"):
        base_of(str(tmp_path / "none"), TEXTS, 0)
    with pytest.raises(ValueError, match=r"the base model .* cannot be read"):
        base_of(str(tmp_path), TEXTS, 0)


def reading(texts: tuple[str, ...]) -> Workload:
    """Three requests with these texts."""
    return replace(workload([3, 7, 40], [9, 4, 30]), texts=texts)


def test_the_predictor_serves_a_workload_on_the_simulator(tmp_path: Path) -> None:
    model = saved("reg_l1", tmp_path)
    load_ = reading(tuple(TEXTS))
    predictor = Proxy(checkpoint=str(tmp_path), threads=1).of(load_, 0)
    for i, expected in enumerate(model.tokens(TEXTS)):
        length, seconds = predictor.predict(load_.facts(i))
        assert length.mean_tokens == expected
        assert seconds > 0
    recorder = serve(load_, predictor=predictor)
    assert sorted(recorder.requests["request"]) == [RequestId(i) for i in range(3)]


def test_a_workload_without_texts_is_refused(tmp_path: Path) -> None:
    saved("reg_l1", tmp_path)
    with pytest.raises(ValueError, match="the workload has no texts"):
        Proxy(checkpoint=str(tmp_path), threads=1).of(reading(()), 0)
    with pytest.raises(ValueError, match=r"predictor\.threads is 0"):
        Proxy(checkpoint=str(tmp_path), threads=0)
    with pytest.raises(ValueError, match="there are 1 texts of 3 requests"):
        reading(("w1",))
