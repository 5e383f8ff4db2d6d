"""A predictor that errs as a measured one did: classes drawn given the true length."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import model_validator

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import Count, Schema, Seconds, Share, Tokens, read_json
from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth, Known

PREDICTORS = PROFILES / "predictors"


class _Stored(Schema):
    """How a predictor erred: shares of its classes by true length, and how long it took."""

    length_tokens: tuple[Tokens, ...]
    class_share: tuple[tuple[Share, ...], ...]
    class_tokens: tuple[Tokens, ...]
    latency_s: tuple[Seconds, ...]
    count: Count
    kind: str
    source: str

    @model_validator(mode="after")
    def _is_one_table(self) -> "_Stored":
        lengths, rows, classes = self.length_tokens, self.class_share, len(self.class_tokens)
        if any(one >= other for one, other in pairwise(lengths)):
            raise ValueError("length_tokens do not ascend")
        if not rows or len(rows) not in (len(lengths), len(lengths) + 1):
            raise ValueError(f"class_share has {len(rows)} rows for {len(lengths)} lengths")
        for place, row in enumerate(rows):
            if len(row) != classes or abs(sum(row) - 1.0) > 1e-3:
                raise ValueError(f"class_share[{place}] is not {classes} shares that add up to 1")
        if not self.latency_s:
            raise ValueError("latency_s is empty")
        return self


class Empirical:
    """Makes the predictor of a workload from a stored table of a measured predictor."""

    def __init__(self, *, profile: str) -> None:
        """Raises ValueError, with the closest names, for a table that there is not."""
        self._table = _load(profile)
        self.files = inputs.digests([PREDICTORS / f"{profile}.json"])

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions: the class of a request is drawn once."""
        table, rng = self._table, np.random.default_rng([seed, 8])
        row = np.searchsorted(table["length_tokens"], workload.output_tokens, side="left")
        shares = np.asarray(table["class_share"])[row.clip(max=len(table["class_share"]) - 1)]
        drawn = rng.random(len(workload))
        classes = (shares.cumsum(axis=1) < drawn[:, None] - 1e-12).sum(axis=1)
        tokens = np.asarray(table["class_tokens"], np.int64)[classes.clip(max=shares.shape[1] - 1)]
        quantiles = np.asarray(table["latency_s"])
        at = np.linspace(0.0, 1.0, len(quantiles))
        return Known(tokens, np.interp(rng.random(len(workload)), at, quantiles))


@cache
def _load(profile: str) -> dict[str, Any]:
    known = {path.stem: path for path in PREDICTORS.glob("*.json")}
    if profile not in known:
        raise ValueError(unknown_name("predictor profile", profile, known))
    return read_json(known[profile], _Stored).model_dump()
