"""Judges a paper's claims, and measures its facts, by the runs that are there.

The reference setting decides; a variation that loses the effect makes it hold partly; the program
of the authors is judged beside it, as a second column.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from harness.claims.effects import (
    PROBE,
    SEED,
    Cells,
    ClaimError,
    Effect,
    EffectKind,
    NoCellError,
    name_of,
)
from harness.claims.paper import Claim, Fact, FigureSpec, Judged, JudgedFact, Paper
from harness.claims.texts import check_texts, number
from harness.claims.verdicts import (
    Verdict,
    Word,
    below_ceiling,
    is_kept,
    measured,
    verdict_of,
    with_variations,
)
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.runs.cell_lists import ScenarioCells, column_of, read_cells
from harness.runs.figures import FIGURES
from harness.runs.matrix import axes_of, settings_of

LIKE_FOR_ALL = ("workload", "hardware", "slo")
"""What a variation changes for every system, by the first part of its key."""
MEASURED = (EffectKind.ABSOLUTE, EffectKind.RATIO, EffectKind.AT_MOST, EffectKind.AT_LEAST)
"""Effects that a fact may have."""


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
        """The reference cells of one or several scenarios. ClaimError where runs are missing.

        A verdict of the cells that are there could be another than that of all.
        """
        found = {run: self.of(run) for run in runs}
        for run, cells in found.items():
            command = f"python harness/run.py +scenario={run}"
            if cells.reference.empty:
                raise ClaimError(f"no runs of {run}: {command}")
            if cells.missing:
                raise ClaimError(f"runs of {run} are missing ({cells.missing}): {command}")
        return _together({run: cells.reference for run, cells in found.items()})

    def has(self, runs: Iterable[str]) -> bool:
        """Whether all reference cells of these scenarios are there."""
        found = [self.of(run) for run in runs]
        return all(not cells.reference.empty and not cells.missing for cells in found)

    def variations(self, runs: Sequence[str], words: Mapping[str, str]) -> dict[str, Cells]:
        """Every variation that has runs, with the reference's cells where it does not apply.

        Variations of several scenarios that `words` calls the same, such as a load which is another
        rate in each, are one.
        """
        if not self.sensitivity:
            return {}
        read = {run: self.of(run) for run in runs}
        names: dict[str, set[str]] = {}
        for name in (name for cells in read.values() for name in _varied_in(cells)):
            names.setdefault(words.get(name, name), set()).add(name)
        return {
            word: _together({run: _varied(cells, same) for run, cells in read.items()})
            for word, same in names.items()
        }


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


def _varied_in(cells: ScenarioCells) -> list[str]:
    return [name for name, varied in cells.variations.items() if not varied.empty]


def _varied(cells: ScenarioCells, names: Collection[str]) -> Cells:
    """The reference with the cells of a variation in place of its own, at the variation's seeds.

    Of a variation of what all systems serve or run on (`LIKE_FOR_ALL`) its own cells alone: those
    of the reference have another workload.
    """
    there = [name for name in _varied_in(cells) if name in names]
    if not there:
        return cells.reference
    varied, axes = cells.variations[there[0]], list(cells.axes)
    if re.split(r"[./=]", there[0])[0] in LIKE_FOR_ALL:
        return varied
    own = pd.MultiIndex.from_frame(cells.reference[axes].astype(str))
    replaced = own.isin(pd.MultiIndex.from_frame(varied[axes].astype(str)))
    others = cells.reference[~replaced & cells.reference[SEED].isin(varied[SEED])]
    return pd.concat([others, varied])


def judge(paper: Paper, claims: Iterable[Claim], source: Source) -> list[Judged]:
    """The verdict of every claim. Raises ClaimError, which names the claim."""
    return [_judged(paper, claim, source) for claim in claims]


def _judged(paper: Paper, claim: Claim, source: Source) -> Judged:
    if claim.effect is None:
        reason = f"{claim.untested}: {claim.note}" if claim.note else claim.untested
        return Judged(claim, Verdict(Word.UNTESTED, reason=reason))
    cells = source.reference(claim.scenarios)
    effect, found, ceiling = _tested(paper, claim, cells)
    variations = {}
    for name, varied in source.variations(claim.scenarios, paper.variations).items():
        with suppress(NoCellError):  # a system that is compared was not run in it
            variations[name] = _tested(paper, claim, varied)[1]
    code = None
    ran = source.sensitivity and all(not source.of(run).reference.empty for run in claim.code)
    if claim.code and ran:
        code = _tested(paper, claim, _as_reference(paper, source.reference(claim.code)))[1]
    verdict = with_variations(found, variations)
    return Judged(claim, verdict, variations, code, _by_setting(effect, claim), ceiling)


def judge_facts(
    paper: Paper, facts: Iterable[Fact], source: Source, *, strict: bool
) -> list[JudgedFact]:
    """Every fact as measured here; without `strict` those whose runs are not there are left out.

    Raises ClaimError, which names the fact.
    """
    asked = [fact for fact in facts if source.sensitivity or not fact.variation]
    return [
        _judged_fact(paper, fact, source) for fact in asked if strict or source.has(fact.scenarios)
    ]


def _judged_fact(paper: Paper, fact: Fact, source: Source) -> JudgedFact:
    cells = source.reference(fact.scenarios)
    if fact.variation:
        varied = source.variations(fact.scenarios, paper.variations)
        if fact.variation not in varied:
            raise ClaimError(f"{paper.name} {fact.says}: no runs with {fact.variation}")
        cells = varied[fact.variation]
    ours = _measured(paper, fact, cells)
    is_load = any(fact is load for load in paper.loads)
    found = JudgedFact(fact, ours, is_load, is_kept(ours, fact.paper))
    if not (fact.code and source.sensitivity and source.has(fact.code)):
        return found
    code = _measured(paper, fact, _as_reference(paper, source.reference(fact.code)))
    return replace(found, code=code, code_kept=is_kept(code, fact.paper))


def _as_reference(paper: Paper, cells: Cells) -> Cells:
    """Cells of the authors' program under the names that claim functions use."""
    named = cells.rename(columns=dict(paper.code_axes))
    return named.replace({axis: dict(names) for axis, names in paper.code_names.items()})


def _tested(paper: Paper, claim: Claim, cells: Cells) -> tuple[Effect, Verdict, Verdict | None]:
    """A claim by these cells alone, with its ceiling. Raises ClaimError, which names the claim."""
    assert claim.effect is not None
    try:
        effect = claim.effect(cells)
        found = verdict_of(effect, claim.paper)
        if claim.ceiling is None:
            return effect, found, None
        most = claim.ceiling(cells)
        if most.kind is not EffectKind.ABSOLUTE:
            raise ClaimError(f"a ceiling is {EffectKind.ABSOLUTE}, not {most.kind}")
    except ClaimError as error:
        raise type(error)(f"{paper.name} {claim.id}: {error}") from None
    ceiling = replace(measured(most), reason="the most that any scheduler could reach")
    shown = number(ceiling.ours, claim.unit) + claim.unit
    return effect, below_ceiling(found, ceiling, claim.paper, shown), ceiling


def _by_setting(effect: Effect, claim: Claim) -> dict[str, Verdict]:
    if effect.samples.shape[1] < 2:
        return {}
    return {
        name_of(name): verdict_of(replace(effect, samples=effect.samples[[name]]), claim.paper)
        for name in effect.samples
    }


def check(paper: Paper) -> list[tuple[Claim, Effect]]:
    """Raise ValueError, before anything runs, for what a claims file names and is not there.

    Every claim is computed from cells that stand for its scenarios': every combination of the
    matrix, each figure 1. Returns the effects that it has there.
    """
    found = []
    sources: list[FigureSpec | Fact] = [*paper.figures, *paper.facts, *paper.loads]
    for one in sources:
        for run in (*one.scenarios, *one.code, *(one.also if isinstance(one, FigureSpec) else ())):
            scenario_file(run.partition(" ")[0])
    for claim in paper.claims.values():
        if claim.effect is not None:
            found.append((claim, _tested(paper, claim, probes(claim.scenarios))[0]))
            if claim.code:
                _tested(paper, claim, _as_reference(paper, probes(claim.code)))
    for fact in (*paper.facts, *paper.loads):
        _measured(paper, fact, probes(fact.scenarios))
        if fact.code:
            _measured(paper, fact, _as_reference(paper, probes(fact.code)))
    check_texts(paper)
    return found


def _measured(paper: Paper, fact: Fact, cells: Cells) -> Verdict:
    """A fact by these cells. Raises ClaimError, which names the fact."""
    try:
        effect = fact.measure(cells)
        if effect.kind not in MEASURED:
            raise ClaimError(f"a fact is {', '.join(MEASURED)}, not {effect.kind}")
        return measured(effect)
    except ClaimError as error:
        raise ClaimError(f"{paper.name} {fact.says}: {error}") from None


def probes(runs: Sequence[str]) -> Cells:
    """Cells as one or several scenarios will have them, before they have run."""
    return _together({run: _probe(run) for run in runs})


@cache
def _probe(run: str) -> Cells:
    content = scenario_file(run.partition(" ")[0])
    matrix = content.get("matrix") or {}
    settings = settings_of(matrix)
    columns = {column_of(axis): [_plain(it[axis]) for it in settings] for axis in axes_of(matrix)}
    frame = pd.DataFrame(columns)
    return frame.assign(**{name: 1.0 for name in FIGURES if name not in frame}, folder=PROBE)


def _plain(value: object) -> object:
    return "+".join(map(str, value)) if isinstance(value, list) else value
