"""How fast a machine was, against its profile: from designed batches of the same minutes.

A machine that others share drifts by tens of per cent within an hour. Before and after runs it
computes batches of known work (`engines.vllm.timed_batches`); their seconds over those that the
profile has for the same batches are two factors, of prompts and of decodes; they are 1 for the
minutes in which the profile was measured.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config.paths import PROFILES
from harness.costs.iteration import iteration_seconds
from harness.costs.model import ProfileCosts
from harness.costs.model_names import model_of
from harness.costs.profiles import Received
from harness.costs.scaled import ScaledCosts
from harness.engines.vllm.designed import design, is_short
from harness.interface.entities import ServiceId
from harness.tools.calibrate import raw
from harness.tools.calibrate.stored import SECONDS, mean_iterations
from harness.tools.fitting.stored import Json

BATCH = ["prompts", "prompt_tokens", "attended", "decodes", "context_tokens", "longest_tokens"]
PAUSE = 5.0
"""So many times further from its profile than most, an iteration is a pause of the machine."""


class Speed(NamedTuple):
    """Measured over profiled seconds: of prompts, and of decodes."""

    prefill: float
    decode: float


class Totals(NamedTuple):
    """Measured seconds of all iterations with prompts, and of all without."""

    with_prompts_s: float
    without_s: float


def speeds_text(speeds: Sequence[Speed]) -> str:
    """As a sentence: how much slower than its profile a machine was."""
    if not speeds:
        return "nothing says how fast the machine was against its profile in these minutes"
    said = " and ".join(
        f"{what} {np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        for what, values in zip(("prompts", "decodes"), zip(*speeds, strict=True), strict=True)
    )
    return f"designed batches took, before and after the runs, times as long as profiled: {said}"


def against(speed: Speed, reference: Speed) -> Speed:
    """A speed against another one of the same batches."""
    return Speed(speed.prefill / reference.prefill, speed.decode / reference.decode)


@cache
def reference_of(costs: ProfileCosts, service: str) -> Speed:
    """What the short sweep took when the profile was measured, over what the profile has.

    A fit to all batches is a little off on these few. 1 where no repetitions are stored.
    """
    model = model_of(service)
    for path in sorted((PROFILES / costs.profile_dir).glob("*.parquet")):
        rows, facts = raw.read(path)
        if facts["model"] == model:
            return speed_of(short_runs(rows, facts), costs, model)
    return Speed(1.0, 1.0)


def short_runs(rows: pd.DataFrame, facts: Json) -> pd.DataFrame:
    """Rows of a calibration of the runs that a short sweep has, means over repetitions."""
    means = mean_iterations(rows)
    run = ((means["received"] > 0) & (means["decodes"] == 0)).cumsum() - 1
    resolved, most = facts["resolved"], int(means["received"].max())
    tokens = facts["kv_blocks"] * facts["block_tokens"]
    runs = design(tokens, most, resolved["max_num_batched_tokens"])
    if run.iloc[-1] + 1 != len(runs):
        raise ValueError(f"a calibration of {facts['model']} has other runs than the design")
    return means[[is_short(runs[number]) for number in run]]


def speed_of(rows: pd.DataFrame, costs: ProfileCosts, service: str) -> Speed:
    """The factors that give the measured totals of `rows`, which have `timed_batches.COLUMNS`."""
    return speed_from(totals_of(rows, costs, service), rows, costs, service)


def totals_of(rows: pd.DataFrame, costs: ProfileCosts, service: str) -> Totals:
    """Measured totals; a pause of the machine counts as what the other iterations take there."""
    whole_s, _ = _profiled(rows, costs, service)
    ratio = rows[SECONDS].sum(axis=1).to_numpy() / whole_s
    usual = float(np.median(ratio))
    measured_s = np.where(ratio > PAUSE * usual, usual, ratio) * whole_s
    with_prompts = rows["prompts"].to_numpy() > 0
    return Totals(float(measured_s[with_prompts].sum()), float(measured_s[~with_prompts].sum()))


def speed_from(totals: Totals, batches: pd.DataFrame, costs: ProfileCosts, service: str) -> Speed:
    """The factors that give these totals of batches of the columns `BATCH`.

    Decodes beside prompts count as decodes.
    """
    whole_s, prompts_s = _profiled(batches, costs, service)
    with_prompts = batches["prompts"].to_numpy() > 0
    decode = totals.without_s / float(whole_s[~with_prompts].sum())
    own_s = float(prompts_s[with_prompts].sum())
    beside_s = float(whole_s[with_prompts].sum()) - own_s
    return Speed((totals.with_prompts_s - decode * beside_s) / own_s, decode)


def _profiled(
    rows: pd.DataFrame, costs: ProfileCosts, service: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds of every iteration by the profile, and of its prompts alone."""
    table = costs.table(service, 1)
    whole_s, alone_s = np.zeros(len(rows)), np.zeros(len(rows))
    for place, row in enumerate(rows[BATCH].to_numpy(np.float64)):
        prompts, tokens, decodes, context, longest = (int(row[it]) for it in (0, 1, 3, 4, 5))
        prompt_work = (prompts, tokens, tokens, float(row[2]))
        whole_s[place] = iteration_seconds(table, *prompt_work, decodes, context, longest)
        alone_s[place] = iteration_seconds(table, *prompt_work, 0, 0, 0)
    return whole_s, alone_s


def speeds_between(speeds: Sequence[Speed]) -> list[Speed]:
    """The speed of each repetition: the mean of those before and after it."""
    return [
        Speed(*((one + other) / 2 for one, other in zip(before, after, strict=True)))
        for before, after in pairwise(speeds)
    ]


def speeds_of(swept: Mapping[str, Any] | None, costs: ProfileCosts, model: str) -> list[Speed]:
    """How fast the machine was in each stored sweep, against its profile; nothing without sweeps.

    `batches` are in the columns of `BATCH`, `totals` are those of each sweep.
    """
    if swept is None:
        return []
    batches, reference = pd.DataFrame(swept["batches"], columns=BATCH), reference_of(costs, model)
    return [
        against(speed_from(Totals(*totals), batches, costs, model), reference)
        for totals in swept["totals"]
    ]


def speeds_in(rows: pd.DataFrame, costs: ProfileCosts) -> dict[str, Speed]:
    """By service, how fast the machine was in a measured run of these designed batches.

    The mean of before and after, against its profile.
    """
    found: dict[str, Speed] = {}
    for service, part in rows.groupby("service"):
        name, sides = str(service), (part[part["when"] == it] for it in ("before", "after"))
        (between,) = speeds_between([speed_of(side, costs, name) for side in sides])
        found[name] = against(between, reference_of(costs, name))
    return found


class AtSpeed(ScaledCosts):
    """Costs of a machine that was so fast, by service."""

    def __init__(self, costs: ProfileCosts, speeds: Mapping[str, Speed]) -> None:
        super().__init__(costs)
        self._speeds = dict(speeds)

    def __reduce__(self) -> tuple[Callable[..., "AtSpeed"], tuple[object, ...]]:
        return AtSpeed, (self._costs, self._speeds)

    def factors(self, service: str, tensor_parallel: int) -> tuple[float, float]:
        """Those of the service; 1 where it was not timed."""
        speed = self._speeds.get(service, Speed(1.0, 1.0))
        return speed.prefill, speed.decode

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """Taking a request in slows as decodes do: both are mostly work of the CPU."""
        _, decode = self.factors(service, tensor_parallel)
        first_s, more_s = self._costs.received_s(service, tensor_parallel)
        return Received(decode * first_s, decode * more_s)
