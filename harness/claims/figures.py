"""The figures and tables of a paper, as its file has them: results/claims/<paper>/figures.yaml.

variants   what a figure shows unless a variant is asked for: paper, code, or both
figures    by name, each with

shows      one line for a reader
runs       by variant: the scenarios, with `variant=code` where that is not what their files say
needs      Python module: the runs (of `runs`) that there are only where it is installed;
where it is not the figure is kept as it is
plotter    module:function; none where nothing is drawn
where      columns and their values: the runs that are handed to the plotter
derive     columns that are worked out from a run's folder: {name: module:function}
tables     what is worked out from the claims and stored profiles: {name: module:function}
claims     the claims that it feeds; every one with a check feeds exactly one figure
minutes    expected, of all its runs, on 2 cores
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.claims.checks import Matcher
from harness.costs.model_facts import unknown_name
from harness.runs.config import VARIANTS, check_variant
from harness.schema import STRICT, Schema, fits
from harness.yaml_files import read_yaml

_NAME = re.compile(r"\w[\w.-]{0,99}")
"""Of a paper and a figure: files bear it."""
_RUN = re.compile(rf"\w[\w.-]*( variant=({'|'.join(VARIANTS)}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureEntry:
    """One figure; the module says what each field means."""

    __pydantic_config__ = STRICT

    name: str
    shows: str
    minutes: float
    runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plotter: str = ""
    where: Matcher = field(default_factory=dict)
    derive: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[str] = ()

    def scenarios(self, variant: str) -> list[str]:
        """Names of the scenarios that it reads."""
        return [run.split()[0] for run in self.runs.get(variant, ())]


class _File(Schema):
    """What a file has beside what its figures share."""

    variants: list[str]
    figures: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigures:
    """All figures of a paper."""

    variants: Sequence[str]
    figures: Mapping[str, FigureEntry]

    def chosen(self, names: Sequence[str]) -> list[FigureEntry]:
        """Those of these names, all of them for none. ValueError for a name that is not there."""
        for name in names:
            if name not in self.figures:
                raise ValueError(f"there is no figure {name}; there are {', '.join(self.figures)}")
        return [self.figures[name] for name in names or self.figures]


def read_figures(claims: Path, paper: str) -> PaperFigures:
    """The figures of a paper in the folder of claims. ValueError for what a file may not say."""
    path = claims / paper / "figures.yaml"
    if not _NAME.fullmatch(paper) or not path.is_file():
        there = sorted(found.parent.name for found in claims.glob("*/figures.yaml"))
        raise ValueError(f"there are no figures of {paper}; there are those of {', '.join(there)}")
    # Further keys hold what several figures share.
    read = read_yaml(path)
    if not isinstance(read, Mapping):
        raise ValueError(f"{path}: {read} is not variants and figures")
    content = {key: said for key, said in read.items() if key in _File.model_fields}
    file = fits(content, _File, str(path))
    for variant in file.variants:
        check_variant(variant)
    try:
        figures = {name: _entry(name, said) for name, said in file.figures.items()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return PaperFigures(variants=file.variants, figures=figures)


def _entry(name: str, said: Mapping[str, Any]) -> FigureEntry:
    """Raises ValueError for a word that is not known, and for what it may not be."""
    known = dict.fromkeys(one.name for one in fields(FigureEntry) if one.name != "name")
    for word in said:
        if word not in known:
            raise ValueError(f"{name}: {unknown_name('word of a figure', word, known)}")
    entry = fits({"name": name, **said}, FigureEntry, name)
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a figure: a file bears it")
    for variant, runs in entry.runs.items():
        check_variant(variant)
        # What else harness/run.py may be told makes runs that are not the scenario's own.
        if lost := [run for run in runs if not _RUN.fullmatch(run)]:
            raise ValueError(f"{name}: runs.{variant}={lost[0]!r} is not SCENARIO [variant=...]")
    needed = [run for runs in entry.needs.values() for run in runs]
    ran = [run for variant in VARIANTS for run in entry.runs.get(variant, ())]
    if lost := sorted(set(needed) - set(ran)):
        raise ValueError(f"{name}: needs names {', '.join(lost)}, which it does not run")
    return entry
