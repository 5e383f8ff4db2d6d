"""Where claims come out: `python -m harness conditions PAPER [CLAIM ...]`, or `where A B`.

Settings are tried in all cores and kept as they are done, so that a command that was ended goes on
where it was. Below results/local/conditions, or results/conditions with `--publish`: the cells of
each space as PAPER/SPACE.csv, what follows of each claim in PAPER.json, a picture for each claim.
With `--cell SPACE:NUMBER` the runs of this cell alone are served, and kept as any other run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any

import pandas as pd

from harness import api
from harness.claims.effects import SEED
from harness.claims.paper import Claim
from harness.claims.verdicts import NEAR
from harness.conditions.cells import Ground, Side, ground_of
from harness.conditions.changes import (
    Change,
    alone,
    nearest_alone,
    nearest_together,
)
from harness.conditions.maps import Map
from harness.conditions.outcomes import Found, Outcome, found_of
from harness.conditions.space import Point, Space, read_spaces, space_of
from harness.conditions.texts import (
    against,
    best_of,
    change_text,
    condition,
    setting_text,
    state_condition,
)
from harness.conditions.trials import SEEDS, WHY, Inquiry, OfPaper, Trials, asked
from harness.config.hydra_words import word
from harness.config.names import unknown_name
from harness.config.scratch import write_whole
from harness.rank import offered, search_word
from harness.runs import published
from harness.runs.building import cell_of
from harness.runs.config import RunConfig
from harness.runs.figures import check_shown, figures_of, header_of, is_more_better, unit_of
from harness.runs.progress import CellProgress
from plots import conditions as pictures
from plots import style

KEPT_EVERY = 32
"""Settings after which they are written."""
STAMP = "space"
"""Column of stored cells: what they follow from."""
WHERE = "where"
"""The scenario, and the claim, of two policies of a user."""
LONGEST_TOKENS = 2048
DIMENSIONS: Mapping[str, Any] = {
    "load": {"range": [0.2, 3.0], "reference": 1.0},
    "batch": {"range": [4, 256], "reference": 256},
    "kv_share": {"range": [0.1, 1.0], "reference": 1.0},
    "tokens": {"range": [1024, 16384], "reference": 8192},
    "spread": {"range": [0.3, 1.5], "reference": 1.0},
    "prompts": {"range": [0.25, 2.0], "reference": 1.0},
    "burstiness": {"range": [0.3, 6.0], "reference": 1.0},
    "error": {"range": [0.0, 1.0], "reference": 0.0},
}
"""Of two policies of a user; a policy that needs no predictions goes by none."""
ENOUGH_HELD, LEAST_COMING = 40, 0.05
"""Held-out cells that come out, below which the sample is doubled where so many of all do."""


@dataclass(frozen=True, slots=True)
class PoliciesAsked:
    """Two policies, by name or file, a figure, and the load: further words of `harness/run.py`."""

    one: str
    other: str
    figure: str = "jct_s_mean"
    gain: float = 0.1
    log2_cells: int = 8
    words: Sequence[str] = ()


def make_maps(paper: str, claims: Sequence[str], *, publish: bool) -> None:
    """Make the maps of these claims, or of all that a paper's spaces have, and print them.

    Raises ValueError for a claim that no space has.
    """
    spaces = read_spaces(paper)
    known = dict.fromkeys(claim for space in spaces.values() for claim in space.claims)
    if unknown := [it for it in claims if it not in known]:
        raise ValueError(
            f"{unknown[0]} has no space: systems/{paper}/conditions.yaml has {', '.join(known)}"
        )
    folder = published.place("conditions", publish=publish)
    stored = folder / f"{paper}.json"
    content = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() else {}
    for space in spaces.values():
        wanted = [it for it in space.claims if it in claims or not claims]
        if not wanted:
            continue
        question = OfPaper(paper, space.name, space.content)
        ground = ground_of(space)
        with Trials(question) as trials:
            table = tried_cells(question, ground, trials, folder / paper / f"{space.name}.csv")
            for name in wanted:
                found = Made(question, ground, table, name, trials)
                content[name] = found.content
                style.save(found.picture(), folder / paper / name.replace(".", "-"))
                print_map(name, content[name])
        published.write(stored, json.dumps(content, indent=1) + "\n")


def serve_cell(paper: str, named: str, results: Path = published.RESULTS) -> None:
    """Serve a cell below `results`; print each run, and what claims give of them.

    The cell is `SPACE:NUMBER`, counted from 0 as the rows of the space's stored cells are, or a
    claim, for the nearest change of the paper's own point that its published map has. Raises
    ValueError for what is not there, and where the setting is impossible.
    """
    read_spaces(paper)
    if ":" in named:
        space, number = cell_named(paper, named)
        setting: Point = space.sample(_most_cells(space))[number]
        seeds = _seeds(paper, space, number)
    else:
        space, setting = _nearest(paper, named)
        seeds = space.most_seeds
    ground, claims = ground_of(space), OfPaper(paper, space.name, space.content).claims
    place = {"results": str(results), "name": f"{paper}_{named.replace(':', '_')}"}
    print(f"{named}: {setting_text(space, setting)}")
    rows = []
    for seed in range(seeds):
        for side in ground.sides:
            config = ground.configuration(side, setting, seed).model_copy(update=place)
            run = api.run(config)
            rows.append({**figures_of(run), **side.axes, SEED: seed, "folder": run})
            _print_run({**_apart(side, ground), SEED: seed}, rows[-1], config)
    cells = pd.DataFrame(rows)
    for name, claim in claims.items():
        one = found_of(claim, cells)
        print(f"{name}: {one.outcome}, {one.value:.4g} [{one.low:.4g}, {one.high:.4g}]")


def cell_named(paper: str, named: str) -> tuple[Space, int]:
    """The space and the number of `SPACE:NUMBER`. Raises ValueError for what is not there."""
    name, colon, text = named.rpartition(":")
    if not colon:
        raise ValueError(f"--cell {named} is no SPACE:NUMBER")
    spaces = read_spaces(paper)
    if name not in spaces:
        raise ValueError(unknown_name("space", name, dict.fromkeys(spaces)))
    most = _most_cells(spaces[name]) - 1
    if not (text.isdecimal() and int(text) <= most):
        raise ValueError(f"{name} has no cell {text!r}: its cells are 0 to {most}")
    return spaces[name], int(text)


def _nearest(paper: str, claim: str) -> tuple[Space, Point]:
    """The space of a claim, and the setting of its nearest change."""
    path = published.place("conditions", publish=True) / f"{paper}.json"
    maps = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if claim not in maps:
        raise ValueError(f"--cell {claim} is neither SPACE:NUMBER nor a claim with a map")
    if not maps[claim]["nearest"]:
        raise ValueError(f"{claim}: {maps[claim]['change'] or 'no change loses it'}")
    return read_spaces(paper)[maps[claim]["space"]], maps[claim]["nearest"]


def _most_cells(space: Space) -> int:
    return max(space.cells, space.most_cells)


def _seeds(paper: str, space: Space, number: int) -> int:
    """As many as the published cell has; those that every cell has where it is not published."""
    path = published.place("conditions", publish=True) / paper / f"{space.name}.csv"
    seeds = pd.read_csv(path)[SEEDS].tolist() if path.is_file() else []
    return int(seeds[number]) if number < len(seeds) else space.seeds


def _apart(side: Side, ground: Ground) -> dict[str, Any]:
    """Values of a side that another side has not."""
    others = [one.axes for one in ground.sides]
    return {k: v for k, v in side.axes.items() if any(it.get(k) != v for it in others)}


def _print_run(axes: Mapping[str, Any], row: Mapping[str, Any], config: RunConfig) -> None:
    said = " ".join(f"{key}={value}" for key, value in axes.items())
    shown = [it for it in config.shows if it in row] or ["jct_s_mean"]
    figures = ", ".join(f"{header_of(name)} {row[name]:.4g}" for name in shown)
    print(f"{said}: {figures}: {published.shown(cell_of(config).folder)}", flush=True)


def tried_cells(question: Inquiry, ground: Ground, trials: Trials, path: Path) -> pd.DataFrame:
    """The cells of a space: those that are stored, and the rest of its sample, stored as well.

    Cells of another space or program, of an edited policy for instance, are tried again.
    """
    space = question.space
    functions = [getattr(it.effect, "func", it.effect) for it in question.claims.values()]
    printed = {name: [repr(it.paper), it.unit] for name, it in question.claims.items()}
    stamp = ground.stamp(sorted({str(it.__module__) for it in functions}), printed)
    table = _stored(path, stamp)
    table = _completed(space, trials, table, path, stamp, space.cells)
    for name in space.claims:
        found = Map(space, name, table)
        few = 0 < found.comes[found.held].sum() < ENOUGH_HELD
        if few and found.comes.mean() >= LEAST_COMING and 2 * space.cells <= space.most_cells:
            return _completed(space, trials, table, path, stamp, 2 * space.cells)
    return table


def _stored(path: Path, stamp: str) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    table = pd.read_csv(path, dtype={STAMP: str})
    return table if (table[STAMP] == stamp).all() else pd.DataFrame()


def _completed(
    space: Space, trials: Trials, table: pd.DataFrame, path: Path, stamp: str, cells: int
) -> pd.DataFrame:
    left = space.sample(cells)[len(table) :]
    with CellProgress(len(left)) as progress:
        progress.says(space.name)
        for number, one in enumerate(trials.run(left, space.seeds), start=1):
            row = pd.DataFrame([{STAMP: stamp, **one.row}])
            table = pd.concat([table, row], ignore_index=True) if len(table) else row
            progress.done()
            if number % KEPT_EVERY == 0 or number == len(left):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, table.to_csv(index=False, float_format="%.4g"))
    return table


class Made:
    """The map of a claim, and the changes of the paper's own point that bring it or lose it."""

    def __init__(
        self, question: Inquiry, ground: Ground, table: pd.DataFrame, name: str, trials: Trials
    ) -> None:
        space = question.space
        self.map, self.claim, self._trials = Map(space, name, table), question.claims[name], trials
        if self.map.table.empty:
            why = table[WHY].mode()[0]
            raise ValueError(f"none of the {len(table)} settings can be served; most often: {why}")
        self.points, self.basis = ground.reference, ground.basis
        self.start = self.points[len(self.points) // 2]
        self.at_start = next(self._ask([self.start]))
        self.steps = alone(space, self.start, self._ask)
        self.comes = self.at_start.outcome is Outcome.COMES_OUT
        self.changes = nearest_alone(space, self.start, self.steps, self._ask, comes=not self.comes)
        self.several = None if self.comes or self.changes else self._several(space)

    def _ask(self, settings: Sequence[Point]) -> Iterator[Found]:
        for one in self._trials.run(settings, self.map.space.most_seeds):
            yield one.found[self.map.claim]

    def _several(self, space: Space) -> Change | None:
        expect, ask = self.map.expected, self._ask
        tries = (
            nearest_together(space, self.start, expect, ask, several=several, enough=NEAR[0])
            for several in (2, 3)
        )
        return next((one for one in tries if one is not None), None)

    @property
    def nearest(self) -> Change | None:
        """The nearest change, of as few dimensions as bring it, or lose it."""
        return self.changes[0] if self.changes else self.several

    @property
    def content(self) -> dict[str, Any]:
        """What is stored of it."""
        found = self.map
        return {
            "space": found.space.name,
            "digest": found.space.digest,
            "basis": self.basis,
            "counts": {it.value: count for it, count in found.counts.items()},
            "agrees": dict(zip(("box", "regression"), found.agrees, strict=True)),
            "boxes": [_plain(asdict(one)) for one in found.box],
            "condition": condition(found),
            "simple": found.is_simple,
            "limits": best_of(found),
            "most": _digits(float(found.sizes.max())),
            "state": state_condition(found),
            "reversed": against(found, Outcome.REVERSED),
            "no_effect": against(found, Outcome.NO_EFFECT),
            "points": [_plain(one) for one in self.points],
            "from": setting_text(found.space, self.start),
            "at_start": _plain(asdict(self.at_start)),
            "change": change_text(found.space, self.start, self.nearest, comes=self.comes),
            "nearest": _plain({**self.start, **self.nearest.values}) if self.nearest else {},
            "changes": [_plain(asdict(one)) for one in self.changes],
            "influence": {it.dimension: _digits(it.mean) for it in found.influences if it.is_seen},
        }

    def picture(self) -> Any:
        """The map, the tornado and the state in one figure."""
        about = (
            f"{len(self.map.table)} settings of {self.map.space.scenario}, {self.basis}. "
            f"{condition(self.map)} From {setting_text(self.map.space, self.start)}."
        )
        return pictures.draw(self.map, self.claim, self.points, self.steps, self.start, about)


def print_map(name: str, content: Mapping[str, Any]) -> None:
    """Print the sentences of a map."""
    counts = ", ".join(f"{count} {word}" for word, count in content["counts"].items() if count)
    print(f"{name}: {counts}")
    for key in ("condition", "state", "reversed", "no_effect", "change"):
        if content[key]:
            print(f"  {content[key]}")
    print(f"  {content['basis']}")
    influence = ", ".join(f"{key} {value:g}" for key, value in content["influence"].items())
    print(f"  decided by: {influence or 'nothing that is seen'}")


def _plain(value: Any) -> Any:
    """As JSON can hold it: four digits, None for what is no number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return _digits(value) if isinstance(value, float) else value


def _digits(value: float) -> float | None:
    return float(f"{value:.4g}") if isfinite(value) and not isnan(value) else None


@dataclass(frozen=True, slots=True)
class OfPolicies:
    """What one policy gains over another in a figure: at least `gain`, a share of the other's."""

    one: str
    other: str
    figure: str
    gain: float
    content: Mapping[str, Any]

    @property
    def space(self) -> Space:
        """As `Inquiry`."""
        return space_of("where", self.content)

    @property
    def claims(self) -> Mapping[str, Claim]:
        """As `Inquiry`."""
        is_more = is_more_better(self.figure)
        figure = header_of(self.figure).removesuffix(f" {unit_of(self.figure)}")
        says = "{0}'s {2} over that of {1}" if is_more else "{2} that {0} saves over {1}"
        claim = Claim(
            id=WHERE,
            figure=WHERE,
            where="",
            says=says.format(self.one, self.other, figure),
            quote="",
            paper=1 + 1.5 * self.gain if is_more else 1.5 * self.gain,  # comes out from 2/3 of it
            unit="x" if is_more else "%",
        )
        return {WHERE: asked(claim, self.space.claims[WHERE])}


def make_where(asked_of: PoliciesAsked) -> None:
    """Where one policy gains over another: print the map of two policies and draw it.

    Raises ValueError for a policy, a figure or a load that is not there.
    """
    check_shown([asked_of.figure], drawn=False)
    if not 0 < asked_of.gain < inf:
        raise ValueError(f"--gain {asked_of.gain:g}: it takes a share above 0")
    with ExitStack() as stack:
        names, words = _policies(stack, asked_of)
        content = content_of(names, words, asked_of)
        question = OfPolicies(names[0], names[1], asked_of.figure, asked_of.gain, content)
        name = "_".join((*names, asked_of.figure))
        folder = published.place(WHERE, publish=False) / name
        ground = ground_of(question.space)
        with Trials(question) as trials:
            table = tried_cells(question, ground, trials, folder / "cells.csv")
            found = Made(question, ground, table, WHERE, trials)
        said = f"{question.claims[WHERE].says}; comes out: {100 * asked_of.gain:g}% or more"
        print_map(said, found.content)
        for path in style.save(found.picture(), folder / "map"):
            print(f"wrote {published.shown(path)}")


def _policies(stack: ExitStack, asked_of: PoliciesAsked) -> tuple[list[str], list[str]]:
    """Names of both policies, and the words with which those of a file are found."""
    names: list[str] = []
    words = [*asked_of.words]
    for given in (asked_of.one, asked_of.other):
        names.append(given)
        if given.partition(":")[0].endswith((".py", ".yaml")):
            policy = stack.enter_context(offered(given))
            words.append(search_word(policy))
            names[-1] = policy.stem
    if names[0] == names[1] and asked_of.one != asked_of.other:
        both = f"{asked_of.one} and {asked_of.other} are both called {names[0]}"
        raise ValueError(f"{both}: a policy is known by the name of its file")
    return names, words


def content_of(
    names: Sequence[str], words: Sequence[str], asked_of: PoliciesAsked
) -> dict[str, Any]:
    """The space of two policies: the dimensions that any load has."""
    of, over = ({"policy": name} for name in names)
    return {
        "claims": {WHERE: {"figure": asked_of.figure, "of": of, "over": over}},
        "scenario": WHERE,
        "words": [
            *words,
            word("compare.reference", names[1]),
            word("++matrix", {"policy": [*dict.fromkeys(names)], "seed": [0]}),
        ],
        "baseline": over,
        "log2_cells": asked_of.log2_cells,
        "backlog": 500,
        "longest_output_tokens": LONGEST_TOKENS,
        "dimensions": DIMENSIONS,
    }
