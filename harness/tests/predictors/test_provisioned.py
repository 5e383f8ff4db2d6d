"""Predictions that provide as much KV too much and too little as asked for."""

from dataclasses import replace

import numpy as np
import pytest

from harness.config.build import build
from harness.config.yaml_files import read_choice
from harness.predictors.provisioned import Error, Provisioned, shares_of
from harness.tests.support.serving import workload
from harness.workloads.lengths import Paired

FIGURE_5A = {
    "alpaca": ("alpaca_scaled", 0.0262, 0.0930, 0.10),
    "sharegpt": ("sharegpt_turns_scaled", 0.0562, 0.1342, 0.15),
    "bookcorpus": ("bookcorpus", 0.0512, 0.2192, 0.20),
}
"""By data set: lengths, over- and under-provisioning, padding (arXiv 2411.06364)."""


@pytest.mark.parametrize(
    ("padding", "bias", "sigma", "over", "short"),
    [
        (0.10, 0.84, 0.14, 0.0289, 0.1006),
        (0.15, 0.79, 0.22, 0.0584, 0.1328),
        (0.20, 0.69, 0.30, 0.0655, 0.2201),
    ],
)
def test_shares_of_a_lognormal_error(
    padding: float, bias: float, sigma: float, over: float, short: float
) -> None:
    """The closed form against sums of a million draws."""
    found = shares_of(Error(bias, sigma), padding)
    assert found == pytest.approx((over, short), abs=5e-5)
    factor = np.exp(sigma * np.random.default_rng(0).standard_normal(1_000_000))
    provided = (1 + padding) * bias * factor
    drawn = [np.clip(it, 0, None).sum() / provided.sum() for it in (provided - 1, 1 - provided)]
    assert found == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize("data", list(FIGURE_5A))
def test_ecoserves_predictors_have_the_six_numbers_of_figure_5a(data: str) -> None:
    """Of 4,000 answers, in whole tokens and at most 1,041, within 0.1 points."""
    table, over, short, padding = FIGURE_5A[data]
    node = dict(read_choice("predictor", f"ecoserve_{data}"))
    made = build({key: node[key] for key in node if key != "name"}, kind=Provisioned)
    assert shares_of(made.error, padding) == pytest.approx((over, short), abs=1e-4)
    lengths = Paired(table=table, part="all", outputs=None, longest_output_tokens=None)
    count = 4_000
    answers = lengths.draw(count, *map(np.random.default_rng, (0, 1))).output_tokens
    load = workload([1] * count, answers.tolist())
    load = replace(load, max_output_tokens=np.full(count, 1041))
    predictor = made.of(load, 3)
    said = np.array([predictor.predict(load.facts(i))[0].mean_tokens for i in range(count)])
    provided = np.minimum(1041, np.ceil((1 + padding) * said))
    drawn = [
        np.clip(it, 0, None).sum() / provided.sum()
        for it in (provided - answers, answers - provided)
    ]
    assert drawn == pytest.approx([over, short], abs=0.001)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"over_share": 0.0}, r"predictor.over_share is 0.0, it must be above 0 and below 1"),
        ({"short_share": 1.5}, r"predictor.short_share is 1.5, it must be above 0 and below 1"),
        ({"padding": -0.1}, r"predictor.padding is -0.1, it cannot be negative"),
        ({"latency_s": -1.0}, r"predictor.latency_s is -1.0, it cannot be negative"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], sentence: str) -> None:
    given = {"over_share": 0.05, "short_share": 0.1, "padding": 0.1, "latency_s": 0.0} | settings
    with pytest.raises(ValueError, match=sentence):
        Provisioned(**given)


def test_shares_that_no_error_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^no error of predictions provides 0\.9999 too much"):
        Provisioned(over_share=0.9999, short_share=0.9999, padding=0.1, latency_s=0.0)
