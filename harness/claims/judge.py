"""Judges a paper's claims by the runs that are there.

The reference setting decides; a variation that loses the effect makes it hold partly; the program
of the authors is judged beside it, as a second column.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from harness.claims.effects import PROBE, Cells, ClaimError, Effect, Kind
from harness.claims.paper import Claim, Paper
from harness.claims.verdicts import Verdict, Word, told, verdict_of, with_variations
from harness.costs.model_facts import unknown_name
from harness.paths import ROOT
from harness.runs.cell_lists import ScenarioCells, column_of, read_cells
from harness.runs.metrics import FIGURES
from harness.yaml_files import read_yaml

COLUMNS = (
    *("claim", "setting", "paper", "ours", "low", "high"),
    *("share", "share_low", "share_high", "verdict", "seeds", "reason"),
)
"""Of a paper's CSV file."""
REFERENCE, CODE = "reference", "code"


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict, and what its variations and the authors' program give."""

    claim: Claim
    verdict: Verdict
    kind: Kind | None = field(default=None, kw_only=True)
    variations: Mapping[str, Verdict] = field(default_factory=dict)
    code: Verdict | None = None
    settings: Mapping[str, Verdict] = field(default_factory=dict)
    """Of a claim over several settings, each by itself."""

    @property
    def told(self) -> str:
        """How many variations are not too noisy: `6 of 7 variations told`."""
        if not self.variations:
            return ""
        return f"{told(self.variations)} of {len(self.variations)} variations told"


class Source:
    """Cells of scenarios below a results folder, each read once."""

    def __init__(self, results: Path, *, sensitivity: bool) -> None:
        """Without `sensitivity` variations and the authors' program are not read."""
        self._results, self.sensitivity = results, sensitivity
        self._read: dict[tuple[str, str], ScenarioCells] = {}

    def of(self, run: str) -> ScenarioCells:
        """Of a scenario, given as `NAME` or `NAME variant=code`."""
        name, _, more = run.partition(" ")
        variant = more.removeprefix("variant=") or _variant_of(name)
        if (name, variant) not in self._read:
            self._read[name, variant] = read_cells(self._results / name, variant)
        return self._read[name, variant]

    def reference(self, runs: Sequence[str]) -> Cells:
        """The reference cells of one or several scenarios. Raises ClaimError where none are."""
        frames = {run: self.of(run).reference for run in runs}
        for run, frame in frames.items():
            if frame.empty:
                raise ClaimError(f"no runs of {run}: python harness/run.py +scenario={run}")
        return _together(frames)

    def variations(self, runs: Sequence[str]) -> dict[str, Cells]:
        """Every variation of these scenarios, with the reference's cells where it does not apply.

        All have the seeds of the variation.
        """
        if not self.sensitivity:
            return {}
        found: dict[str, Cells] = {}
        for name in dict.fromkeys(name for run in runs for name in self.of(run).variations):
            frames = {run: _varied(self.of(run), name) for run in runs}
            seeds = set.intersection(
                *(set(f["seed"]) for run, f in frames.items() if name in self.of(run).variations)
            )
            found[name] = _together(
                {run: frame[frame["seed"].isin(seeds)] for run, frame in frames.items()}
            )
        return found


def _variant_of(scenario: str) -> str:
    return str(scenario_file(scenario).get("variant", "paper"))


@cache
def scenario_file(name: str) -> Mapping[str, Any]:
    """What a scenario's file holds. Raises ValueError where there is none."""
    folder = ROOT / "scenarios" / "scenario"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = dict.fromkeys(sorted(it.stem for it in folder.glob("*.yaml")))
        raise ValueError(unknown_name("scenario", name, known))
    content: Mapping[str, Any] = read_yaml(path)
    return content


def _together(frames: Mapping[str, Cells]) -> Cells:
    if not frames:  # a claim about measured rows, which no run has
        return pd.DataFrame()
    if len(frames) == 1:
        return next(iter(frames.values()))
    named = [frame.assign(scenario=run.partition(" ")[0]) for run, frame in frames.items()]
    return pd.concat(named, ignore_index=True)


def _varied(cells: ScenarioCells, name: str) -> Cells:
    """The reference with the cells of a variation in place of its own."""
    if name not in cells.variations:
        return cells.reference
    varied = cells.variations[name]
    places = {tuple(row) for row in varied[list(cells.axes)].astype(str).to_numpy()}
    own = cells.reference[list(cells.axes)].astype(str).to_numpy()
    others = cells.reference[[tuple(row) not in places for row in own]]
    return pd.concat([others[others["seed"].isin(varied["seed"])], varied])


def judge(paper: Paper, claims: Iterable[Claim], source: Source) -> list[Judged]:
    """The verdict of every claim. Raises ClaimError, which names the claim."""
    return [_judged(paper, claim, source) for claim in claims]


def _judged(paper: Paper, claim: Claim, source: Source) -> Judged:
    if claim.effect is None:
        reason = f"{claim.untested}: {claim.note}" if claim.note else claim.untested
        return Judged(claim, Verdict(Word.UNTESTED, reason=reason))
    effect = effect_of(paper, claim, source.reference(claim.scenarios))
    found = verdict_of(effect, claim.paper)
    variations = {
        paper.variations.get(name, name): verdict_of(effect_of(paper, claim, cells), claim.paper)
        for name, cells in source.variations(claim.scenarios).items()
    }
    code = None
    if (
        source.sensitivity
        and claim.code
        and all(not source.of(run).reference.empty for run in claim.code)
    ):
        cells = _as_reference(paper, source.reference(claim.code))
        code = verdict_of(effect_of(paper, claim, cells), claim.paper)
    settled, settings = with_variations(found, variations), _by_setting(effect, claim)
    return Judged(claim, settled, variations, code, settings, kind=effect.kind)


def _as_reference(paper: Paper, cells: Cells) -> Cells:
    """Cells of the authors' program under the names that claim functions use."""
    named = cells.rename(columns=dict(paper.code_axes))
    return named.replace({axis: dict(names) for axis, names in paper.code_names.items()})


def effect_of(paper: Paper, claim: Claim, cells: Cells) -> Effect:
    """What a claim's function computes from cells. Raises ClaimError, which names the claim."""
    assert claim.effect is not None
    try:
        return claim.effect(cells)
    except ClaimError as error:
        raise ClaimError(f"{paper.name} {claim.id}: {error}") from None


def _by_setting(effect: Effect, claim: Claim) -> dict[str, Verdict]:
    if effect.samples.shape[1] < 2:
        return {}
    return {
        str(name): verdict_of(Effect(effect.kind, effect.samples[[name]]), claim.paper)
        for name in effect.samples
    }


def check(paper: Paper) -> None:
    """Raise ValueError, before anything runs, for what a claims file names and is not there.

    Every claim is computed from cells that stand for its scenarios': every combination of the
    matrix, each figure 1.
    """
    for figure in paper.figures:
        for run in (*figure.scenarios, *figure.code, *figure.also):
            scenario_file(run.partition(" ")[0])
    for claim in paper.claims.values():
        if claim.effect is None:
            continue
        effect_of(paper, claim, _together({run: probe(run) for run in claim.scenarios}))
        if claim.code:
            cells = _together({run: probe(run) for run in claim.code})
            effect_of(paper, claim, _as_reference(paper, cells))


@cache
def probe(run: str) -> Cells:
    """Cells as a scenario will have them, before it has run."""
    matrix, skip = (scenario_file(run.partition(" ")[0]).get(key) for key in ("matrix", "skip"))
    axes = {str(axis): list(values) for axis, values in (matrix or {}).items()}
    rows = [
        setting
        for values in product(*axes.values())
        if not _is_skipped(setting := dict(zip(axes, values, strict=True)), skip or ())
    ]
    frame = pd.DataFrame({column_of(axis): [_plain(row[axis]) for row in rows] for axis in axes})
    return frame.assign(**{name: 1.0 for name in FIGURES if name not in frame}, folder=PROBE)


def _is_skipped(setting: Mapping[str, Any], skip: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        all(axis in setting and setting[axis] in values for axis, values in pattern.items())
        for pattern in skip
    )


def _plain(value: object) -> object:
    return "+".join(map(str, value)) if isinstance(value, list) else value


def counts(judged: Iterable[Judged]) -> dict[Word, int]:
    """How many claims have each word."""
    words = [one.verdict.word for one in judged]
    return {word: words.count(word) for word in Word}


def write_csv(path: Path, judged: Iterable[Judged]) -> None:
    """Write a row per claim and setting: reference, variations, the program, single settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in judged:
            writer.writerow(_row(one.claim, REFERENCE, one.verdict))
            for name, verdict in one.variations.items():
                writer.writerow(_row(one.claim, name, verdict))
            if one.code is not None:
                writer.writerow(_row(one.claim, CODE, one.code))
            for name, verdict in one.settings.items():
                writer.writerow(_row(one.claim, f"at {name}", verdict))


def _row(claim: Claim, setting: str, found: Verdict) -> list[object]:
    paper = claim.paper if isinstance(claim.paper, tuple) else (claim.paper,)
    printed = claim.printed or "-".join(f"{value:g}" for value in paper)
    numbers = (found.ours, found.low, found.high)
    shares = (found.share, found.share_low, found.share_high)
    return [
        *(claim.id, setting, printed, *map(_digits, numbers), *map(_digits, shares)),
        *(found.word.value, found.seeds, found.reason),
    ]


def _digits(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.4g}"
