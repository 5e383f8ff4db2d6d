"""Settings in which a claim is looked for: dimensions, their ranges, and a paper's own point.

`systems/<paper>/conditions.yaml` has a space for each group of claims that the same cells answer.
A dimension is one of `STANDARD`, with a range of its own, or a key of the configuration with words,
scale and a reason. Spaces are fixed before results are looked at: a stored map has their `digest`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.stats import qmc

from harness.config.engine_limits import LIMITS
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.schema import Schema, fits
from harness.config.yaml_files import read_yaml

PlainConfig = dict[str, Any]
Point = Mapping[str, float]
"""A value on every dimension."""
LOAD, ERROR, SPREAD, PROMPTS, BURSTINESS = "load", "error", "spread", "prompts", "burstiness"
KV_SHARE = "kv_share"
RATE = "workload.arrivals.rate_per_s"
DURATION = "workload.arrivals.duration_s"
"""Of applications, whose arrivals have a span in place of a rate."""
APPLICATIONS = "applications"
GAMMA = "harness.workloads.arrivals.Gamma"
AT_ONCE = "harness.workloads.arrivals.AtOnce"


@dataclass(frozen=True, slots=True)
class Standard:
    """A dimension that every paper may have: what it is called, its scale, and how it is set."""

    words: str
    scale: Literal["log", "linear"]
    apply: Callable[[PlainConfig, float], None] = lambda _, __: None
    whole: bool = False


def put(plain: PlainConfig, key: str, value: object) -> None:
    """Set a dotted key where a configuration has it: a policy's constant is not every policy's."""
    *path, last = key.split(".")
    node: Any = plain
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict) and last in node:
        node[last] = value


def _limit(limit: str) -> Callable[[PlainConfig, float], None]:
    """Of the engine and of every policy: the limit that all are compared under."""

    def apply(plain: PlainConfig, value: float) -> None:
        plain["engine"][limit] = int(value)
        for part in ("policy", "system"):
            _set_everywhere(plain[part], limit, int(value))

    return apply


def _set_everywhere(node: Any, key: str, value: int) -> None:
    for name, inner in node.items() if isinstance(node, dict) else ():
        if name == key and isinstance(inner, int):
            node[name] = value
        _set_everywhere(inner, key, value)


def _reshape(option: str) -> Callable[[PlainConfig, float], None]:
    def apply(plain: PlainConfig, value: float) -> None:
        plain["workload"]["lengths"][option] = value

    return apply


def _kv_share(plain: PlainConfig, value: float) -> None:
    plain["hardware"]["kv_bytes"] = int(plain["hardware"]["kv_bytes"] * value)


def _burstiness(plain: PlainConfig, value: float) -> None:
    plain["workload"]["arrivals"]["burstiness"] = value


def _error(plain: PlainConfig, value: float) -> None:
    if "rank_correlation" in plain["predictor"]:
        plain["predictor"]["rank_correlation"] = 1.0 - value


def _requests(plain: PlainConfig, value: float) -> None:
    plain["workload"]["requests"] = int(value)


def _seconds(plain: PlainConfig, value: float) -> None:
    plain["hardware"]["scale_seconds"] *= value


STANDARD: Mapping[str, Standard] = {
    LOAD: Standard("load, share of what the baseline serves of a backlog", "log"),
    "batch": Standard("largest batch", "log", _limit(LIMITS[0]), whole=True),
    KV_SHARE: Standard("KV, share of what the machine has", "log", _kv_share),
    "tokens": Standard("most tokens of an iteration", "log", _limit(LIMITS[1]), whole=True),
    SPREAD: Standard("spread of answers, times the measured", "log", _reshape("spread_times")),
    PROMPTS: Standard("prompt tokens, times the measured", "log", _reshape("prompt_times")),
    BURSTINESS: Standard("burstiness, CV of gaps", "log", _burstiness),
    ERROR: Standard("prediction error, 1 - rank correlation", "linear", _error),
    "requests": Standard("requests", "log", _requests, whole=True),
    "seconds": Standard("seconds of iterations, times the profile's", "log", _seconds),
}


class _Dimension(Schema):
    """A dimension as a file has it; what is not said is that of `STANDARD`."""

    range: tuple[float, float]
    reference: float | list[float] = 1.0
    why: str = ""
    words: str = ""
    key: str = ""
    scale: Literal["log", "linear"] | None = None
    whole: bool = False


class Restated(Schema):
    """A claim over many settings, asked in one: what `of` saves of, or has over, `over`'s figure.

    The printed number is the claim's own.
    """

    figure: str
    of: dict[str, Any]
    over: dict[str, Any]


class _Space(Schema):
    """A space as a file has it; a claim with nothing beside it is asked by its own function."""

    claims: dict[str, Restated | None]
    scenario: str
    words: tuple[str, ...] = ()
    where: dict[str, Any] = Field(default_factory=dict)
    baseline: dict[str, str]
    rates: tuple[float, ...] = ()
    log2_cells: int = 9
    log2_most: int = 10
    seeds: int = 3
    most_seeds: int = 10
    backlog: int = 1500
    longest_output_tokens: int | None = None
    dimensions: dict[str, _Dimension]


@dataclass(frozen=True, slots=True)
class Dimension:
    """What is varied, from `low` to `high`; `reference` are values at the paper's own points."""

    name: str
    words: str
    low: float
    high: float
    is_log: bool
    whole: bool
    reference: tuple[float, ...]
    apply: Callable[[PlainConfig, float], None]
    why: str = ""

    def at(self, share: float) -> float:
        """The value at a share of the range."""
        if not self.is_log:
            value = self.low + share * (self.high - self.low)
        else:
            value = self.low * (self.high / self.low) ** share
        return float(round(value)) if self.whole else value

    def share(self, value: float) -> float:
        """Where a value lies, as a share of the range; not held to it."""
        if not self.is_log:
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True, slots=True)
class Space:
    """A space of settings, and the cells whose runs its claims read.

    `places` says which of the scenario's cells, `baseline` which of these is the claim's baseline;
    `words` are further words of the command line. `backlog` requests at once give the capacity.
    Own points have these `rates` of requests or applications, where there are any: loads, once the
    capacity is known. A setting has `seeds`, and up to `most_seeds` where these leave open what
    comes out; a sample has `cells`, and twice as many, up to `most_cells`, where few of them do.
    """

    name: str
    claims: Mapping[str, Restated | None]
    scenario: str
    words: tuple[str, ...]
    where: Mapping[str, Any]
    baseline: Mapping[str, str]
    rates: tuple[float, ...]
    cells: int
    most_cells: int
    seeds: int
    most_seeds: int
    backlog: int
    longest_output_tokens: int | None
    dimensions: tuple[Dimension, ...]
    content: Mapping[str, Any]
    """What its file says, of which another process makes the same space."""

    @property
    def digest(self) -> str:
        """12 hex digits of what its file says."""
        text = json.dumps(self.content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def sample(self, cells: int | None = None) -> list[Point]:
        """Settings spread evenly over the space, the same for the same space."""
        power = int(math.log2(cells or self.cells))
        points = qmc.Sobol(len(self.dimensions), scramble=True, seed=0).random_base2(power)
        return [self.setting(point) for point in points]

    def setting(self, shares: Sequence[float]) -> Point:
        """The setting at shares of the ranges."""
        pairs = zip(self.dimensions, np.asarray(shares).tolist(), strict=True)
        return {one.name: one.at(share) for one, share in pairs}

    def dimension(self, name: str) -> Dimension:
        """By its name."""
        return next(one for one in self.dimensions if one.name == name)


def prepared(plain: PlainConfig, space: Space, *, kv_bytes: int) -> PlainConfig:
    """A configuration with all that dimensions set, each as the reference has it.

    Arrivals are independent gaps where burstiness is a dimension, predictions of known rank
    correlation where their error is one; `kv_bytes` are all that the GPU has, for what states none.
    """
    found, names = deepcopy(plain), {one.name for one in space.dimensions}
    workload = found["workload"]
    if BURSTINESS in names:
        gamma = {"rate_per_s": 1.0, "burstiness": 1.0, "sorted_gaps": False}
        workload["arrivals"] = {"_target_": GAMMA, **gamma}
    if {SPREAD, PROMPTS} & names:
        longest = space.longest_output_tokens or workload["max_output_tokens"]
        workload["max_output_tokens"] = longest
        workload["lengths"] = {
            **{"_target_": "harness.workloads.reshaped.Reshaped", "lengths": workload["lengths"]},
            **{"spread_times": 1.0, "prompt_times": 1.0, "longest_output_tokens": longest},
        }
    if ERROR in names and "_target_" in found["predictor"]:
        latency_s = found["predictor"].get("latency_s", 0.0)
        found["predictor"] = {
            **{"name": "ranked", "_target_": "harness.predictors.ranked.Ranked"},
            **{"rank_correlation": 1.0, "latency_s": latency_s},
        }
    if KV_SHARE in names and found["hardware"]["kv_bytes"] is None:
        found["hardware"]["kv_bytes"] = kv_bytes
    return found


def applied(
    plain: PlainConfig, space: Space, setting: Point, *, rate_per_s: float | None
) -> PlainConfig:
    """A prepared configuration in a setting; without a rate all requests come at once."""
    found = deepcopy(plain)
    for one in space.dimensions:
        one.apply(found, setting[one.name])
    workload = found["workload"]
    if rate_per_s is None:
        workload["arrivals"] = {"_target_": AT_ONCE}
        put(found, "workload.requests", space.backlog)
    elif any(one.name == LOAD for one in space.dimensions):
        put(found, RATE, rate_per_s)
        if APPLICATIONS in workload:
            put(found, DURATION, workload[APPLICATIONS] / rate_per_s)
    return found


def read_spaces(paper: str) -> dict[str, Space]:
    """The spaces of a paper by name. Raises ValueError for what a file may not say."""
    path = ROOT / "systems" / paper / "conditions.yaml"
    if not path.is_file():
        known = {it.parent.name: "" for it in sorted(ROOT.glob("systems/*/conditions.yaml"))}
        raise ValueError(unknown_name("paper with conditions.yaml", paper, known))
    return {name: space_of(name, content, str(path)) for name, content in read_yaml(path).items()}


def space_of(name: str, content: Mapping[str, Any], path: str = "a space") -> Space:
    """A space of what a file holds. Raises ValueError for what it may not say."""
    file = fits(content, _Space, f"{path}: {name}")
    dimensions = tuple(_dimension(it, about) for it, about in file.dimensions.items())
    if len(dimensions) > 8:
        raise ValueError(f"{name} has {len(dimensions)} dimensions, at most 8 can be told apart")
    return Space(
        name=name,
        claims=file.claims,
        scenario=file.scenario,
        words=file.words,
        where=file.where,
        baseline=file.baseline,
        rates=file.rates,
        cells=2**file.log2_cells,
        most_cells=2**file.log2_most,
        seeds=file.seeds,
        most_seeds=file.most_seeds,
        backlog=file.backlog,
        longest_output_tokens=file.longest_output_tokens,
        dimensions=dimensions,
        content=content,
    )


def _dimension(name: str, file: _Dimension) -> Dimension:
    known = STANDARD.get(name)
    if known is None and not (file.key and file.words and file.scale and file.why):
        said = unknown_name("dimension", name, dict.fromkeys(STANDARD))
        raise ValueError(f"{said}; one of your own has key, words, scale and why")
    scale = file.scale or (known.scale if known else "linear")
    low, high = file.range
    if not low < high or (scale == "log" and low <= 0):
        raise ValueError(f"{name} has the range {low:g} to {high:g}, which has no {scale} scale")
    whole = known.whole if known else file.whole
    apply = _setter(file.key, whole=whole) if file.key or known is None else known.apply
    points = file.reference if isinstance(file.reference, list) else [file.reference]
    return Dimension(
        name=name,
        words=file.words or (known.words if known else name),
        low=low,
        high=high,
        is_log=scale == "log",
        whole=whole,
        reference=tuple(points),
        apply=apply,
        why=file.why,
    )


def _setter(key: str, *, whole: bool) -> Callable[[PlainConfig, float], None]:
    return lambda plain, value: put(plain, key, int(value) if whole else value)
