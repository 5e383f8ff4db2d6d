"""How the roofline of one engine fares on other engines, and a roofline corrected for it.

The calibration in `harness.tools.fitting.roofline` knows one engine on one machine. Here what that
engine alone accounts for is replaced by operators that others measured: the CPU side, the rate at
which matrices are read, all-reduces. Then a forward pass is multiplied by the median, over groups
of authors, of measured over predicted seconds: engines run the same models slower or faster on
equal GPUs, which no data sheet tells. The error bar leaves out, in turn, all that one group
measured; but which operators to adopt was chosen by looking at it (`CHOICE`), so it flatters
somewhat.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.costs.gpu_facts import gpu_facts
from harness.costs.model_facts import model_facts
from harness.costs.profiles import Profile, read_profiles
from harness.costs.roofline import Calibration, at_size, read_calibration, roofline_profile
from harness.tools.fitting.iteration_rows import by_pair, iteration_rows, measured_sources
from harness.tools.fitting.operator_rates import SOURCE, from_operators
from harness.tools.fitting.roofline import DECODES, PREFILLS, as_json
from harness.tools.fitting.rows import predicted_seconds
from harness.tools.fitting.stored import rounded

Floats = NDArray[np.float64]

FOLDER = "roofline"
PHASES = ("prefill", "decode")
SIZES = (1, 2, 4, 8)  # tensor-parallel sizes; three GPUs count with two
CHOICE = (
    "The operators of step 2 were chosen among about 20 settings by the errors of step 4. Not "
    "adopted: matrix products at 0.65 to 0.72 of the published rate (0.72 as microsoft/vidur "
    "measured), launches 1.3 times as long, a request share of 0.2, CPU components times 0, 0.25 "
    "or 0.5, reading matrices at 0.62, all-reduces at 0.45 or 0.6, and slowing prompts alone."
)
BATCHES = pd.DataFrame(
    [("prefill", *batch) for batch in PREFILLS] + [("decode", *batch) for batch in DECODES],
    columns=["phase", "requests", "length"],
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Measured iterations of one pair beside what the roofline says of them, in seconds.

    `family` names the group of authors.
    """

    family: str
    gpu: str
    engine: str
    model: str
    tensor_parallel: int
    phase: str
    measured_s: Floats
    forward_s: Floats
    overhead_s: Floats

    @property
    def size(self) -> int:
        """The entry of `SIZES` it counts for."""
        return at_size({size: size for size in SIZES}, self.tensor_parallel)

    @property
    def ratio(self) -> float:
        """Median of measured over predicted seconds of a forward pass."""
        return float(np.median((self.measured_s - self.overhead_s) / self.forward_s))

    def errors(self, slowdown: Mapping[str, Mapping[int, float]]) -> Floats:
        """Signed relative errors of whole iterations under a slowdown."""
        factor = at_size(slowdown.get(self.phase, {1: 1.0}), self.tensor_parallel)
        return (factor * self.forward_s + self.overhead_s) / self.measured_s - 1.0


def compare(data: Path, calibration: Calibration) -> list[Compared]:
    """All measured iterations of `profiles/measured.json` under a calibration."""
    found: list[Compared] = []
    for source in measured_sources():
        about = (source.family, source.gpu, source.engine)
        for model, size, pair in by_pair(iteration_rows(source, data)):
            found += _compared(about, model, size, pair, calibration)
    return found


def compare_profiles(profiles: Iterable[Profile], calibration: Calibration) -> list[Compared]:
    """The batches that serving meets, measured by profiles; the engine is the family."""
    found: list[Compared] = []
    for profile in profiles:
        if profile.decode:
            rows = BATCHES.assign(seconds=predicted_seconds(profile, BATCHES))
            about = (profile.engine, profile.gpu, profile.engine)
            found += _compared(about, profile.model, profile.tensor_parallel, rows, calibration)
    return found


def _compared(
    about: tuple[str, str, str], model: str, size: int, rows: pd.DataFrame, found: Calibration
) -> Iterator[Compared]:
    plain = replace(found, slowdown={})
    profile = roofline_profile(model_facts(model), gpu_facts(about[1]), size, plain)
    for phase, of_phase in rows.groupby("phase"):
        forward_s = predicted_seconds(profile, of_phase, parts=("forward",))
        overhead_s = predicted_seconds(profile, of_phase) - forward_s
        measured_s = of_phase["seconds"].to_numpy(np.float64)
        yield Compared(*about, model, size, str(phase), measured_s, forward_s, overhead_s)


def slowdown_of(pairs: Iterable[Compared]) -> dict[str, dict[int, float]]:
    """Median ratio per phase and size: over groups of authors, and in a group over its pairs."""
    keys = ["phase", "size", "family"]
    ratios = pd.DataFrame([{name: getattr(p, name) for name in (*keys, "ratio")} for p in pairs])
    of_family = ratios.groupby(keys)["ratio"].median()
    of_size = of_family.groupby(level=keys[:2]).median()
    return {phase: of_size[phase].to_dict() for phase in of_size.index.unique("phase")}


def left_out(pairs: Iterable[Compared]) -> dict[str, dict[str, dict[int, float]]]:
    """The slowdown that each group of authors is judged by: from all others."""
    pairs = tuple(pairs)
    return {
        family: slowdown_of(pair for pair in pairs if pair.family != family)
        for family in sorted({pair.family for pair in pairs})
    }


def across_errors(
    pairs: Iterable[Compared], *, corrected: bool, but_for: str = ""
) -> dict[str, float]:
    """Medians of the median errors and 95th percentiles of pairs, `but_for` one group of authors.

    Over groups of authors, and in a group over its pairs. `corrected` applies the slowdown that
    the pair's authors had no part in.
    """
    pairs = tuple(pairs)
    judged_by = left_out(pairs)
    rows = []
    for pair in pairs:
        errors = np.abs(pair.errors(judged_by[pair.family] if corrected else {}))
        rows.append((pair.phase, pair.family, *np.quantile(errors, (0.5, 0.95))))
    every = pd.DataFrame(rows, columns=["phase", "family", "median", "p95"])
    judged = every[every["family"] != but_for].groupby(["phase", "family"]).median()
    of_phase = judged.groupby("phase").median().to_dict("index").items()
    return {f"{phase}_{name}": value for phase, row in of_phase for name, value in row.items()}


def across_file(data: Path, calibrated: Path) -> dict[str, Any]:
    """Content of the corrected calibration, made from that of the folder `calibrated`.

    `tried` holds the errors on engines other than the calibrated one, step by step.
    """
    base = read_calibration(calibrated)
    operators = from_operators(base, data)
    profiles = tuple(read_profiles(calibrated).values())
    before = compare_profiles(profiles, base) + compare(data, base)
    everyone = compare_profiles(profiles, operators) + compare(data, operators)
    made = replace(
        operators,
        source=f"{base.source}; {SOURCE}; slowdown: median over "
        + ", ".join(sorted({pair.family for pair in everyone})),
        engine=f"any (from {base.engine})",
        slowdown=slowdown_of(everyone),
        error={**base.error, **across_errors(everyone, corrected=True)},
    )
    tried = {
        name: across_errors(pairs, corrected=corrected, but_for=base.engine)
        for name, pairs, corrected in (
            ("1 roofline of one engine", before, False),
            ("2 with measured operators", everyone, False),
            ("3 with a slowdown instead", before, True),
            ("4 with both", everyone, True),
        )
    }
    return {**as_json(made), "tried": rounded(tried), "choice": CHOICE}
