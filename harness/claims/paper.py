"""A paper: its figures, and its claims as Python functions (`systems/<paper>/claims.py`).

    paper = Paper(name="ours", title=..., figures=(FigureSpec(name="fig4", ...), ...), ...)

    @paper.claim("fig4.jct-continuous", figure="fig4", where="Fig. 4c, section 4.2", paper=0.332,
                 says="mean JCT saved, request rates varied", quote="... reduces JCT by 33.2%")
    def _(cells: Cells) -> Effect:
        return reduction(cells, "jct_s_mean", of=OURS, over=FCFS, average_over=["rate_per_s"])

`python -m harness reproduce` runs the scenarios of a figure, draws it and judges its claims.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.claims.effects import Cells, ClaimError, Effect
from harness.claims.verdicts import Verdict
from harness.config.names import unknown_name
from harness.config.paths import ROOT

ClaimFunction = Callable[[Cells], Effect]

UNTESTED_FOR = (
    *("needs data", "needs hardware", "fed in", "true by construction", "not built"),
    *("contradicts", "overloaded here", "no effect here"),
)
"""Why a claim may be untested, beside noise.

contradicts      the printed numbers contradict each other; the note has the arithmetic
overloaded here  the load is beyond the capacity of every compared system, where the paper reports
                 steady service
no effect here   what is compared or varied makes no difference in the setting; the note says why
"""


REFERENCE, CODE, CEILING, AT = "reference", "code", "ceiling", "at "
"""Settings besides variations; `AT` begins the name of a single setting of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """A figure of a paper: what it shows, the scenarios it is made from, what draws it.

    `scenarios` are run for the paper's text, `code` (scenario, or `SCENARIO variant=code`) for what
    the authors' program does. `plot` is `module:function` below plots/, or empty. `needs` maps a
    module that may not be installed to the scenarios that are left out without it. `also` are
    scenarios that the plot shows and no claim is judged by.
    """

    name: str
    shows: str
    scenarios: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    plot: str = ""
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of a paper and the function that computes its effect; None where untested.

    `says` is the claim in words; claims of one `group` share a row of the table, whose words are
    the group. `paper` is the printed number, a pair for a range, NaN for a fact or a trend, for
    which `printed` says it in words. `unit` is appended to numbers (`x`, `%`, ` s`). `scenarios`
    are those of the figure unless named; of several the cells have a column `scenario`. `ceiling`
    gives the most that any scheduler could reach at the same setting, as an ABSOLUTE effect in the
    claim's unit (a saved share of 0.4, a ratio of 1.3). `why` is the cause of the verdict, shown in
    place of the verdict's own reason. `why` and `note` are templates (`harness.claims.texts`).
    """

    id: str
    figure: str
    where: str
    says: str
    quote: str
    paper: float | tuple[float, float] = float("nan")
    printed: str = ""
    unit: str = "x"
    group: str = ""
    scenarios: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    untested: str = ""
    note: str = ""
    why: str = ""
    ceiling: ClaimFunction | None = None
    effect: ClaimFunction | None = None

    @property
    def words(self) -> str:
        """The claim in words of its own: its group, then what distinguishes it there."""
        group, says = self.group.partition(" (")[0].split(), self.says.split()
        if {word.strip(",:") for word in group} <= {word.strip(",:") for word in says}:
            return self.says
        pairs = zip(group, says, strict=False)
        same = [one.strip(",") == other.strip(",") for one, other in pairs]
        start = same.index(False) if False in same else len(same)
        return f"{' '.join(group)}: {' '.join(says[start:] or says)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a paper states of its own runs or of its baselines, and how it is measured here.

    Facts fix the reference setting; no gain is judged by them. `measure` returns an ABSOLUTE
    or RATIO effect, which is kept where its mean is within 25% of `paper`, or an AT_MOST or
    AT_LEAST one, which is kept where its worst setting is within the bound. Where no number is
    printed `paper` is NaN and nothing is compared; `printed` are words that stand in place of the
    number. `scenarios` and `code` (of the authors' program, for a second column) are those of
    claims, each `NAME` or `NAME variant=code`. `note` is a template: the reason where the fact is
    not kept. With `variation`, in words of the paper's, the fact is measured there in place of the
    reference, where variations have run. Facts of one `group` share a row, whose words are the
    group.
    """

    says: str
    measure: ClaimFunction
    group: str = ""
    where: str = ""
    paper: float = float("nan")
    printed: str = ""
    unit: str = ""
    scenarios: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    note: str = ""
    variation: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict, and what its variations and the authors' program give."""

    claim: Claim
    verdict: Verdict
    variations: Mapping[str, Verdict] = field(default_factory=dict)
    code: Verdict | None = None
    settings: Mapping[str, Verdict] = field(default_factory=dict)
    """Of a claim over several settings, each by itself."""
    ceiling: Verdict | None = None
    """The most that any scheduler could reach, as a value alone."""

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """By setting: the reference, variations, the program, the ceiling, single settings."""
        named = {CODE: self.code, CEILING: self.ceiling}
        beside = {name: one for name, one in named.items() if one is not None}
        settings = {f"{AT}{name}": one for name, one in self.settings.items()}
        return {REFERENCE: self.verdict, **self.variations, **beside, **settings}


@dataclass(frozen=True, slots=True)
class JudgedFact:
    """A fact or a load as measured here and by the authors' program.

    `kept` is None where no number is printed.
    """

    fact: Fact
    ours: Verdict
    is_load: bool = False
    kept: bool | None = None
    code: Verdict | None = None
    code_kept: bool | None = None


@dataclass(slots=True, kw_only=True)
class Paper:
    """Everything of a paper that its page and its commands need.

    `headline` gives two or three sentences from the judged claims by id. `chosen` lists what
    neither text nor program states, with the declared default. `variations` names variations in
    words, by `key=value`. `program` is a paragraph about the authors' own program when it was run.
    `code_names` maps axis -> {name in the program's scenario: name in the reference's} and
    `code_axes` axis there -> axis here, so that one claim function reads both.

    `facts` are what the paper states of its own runs; `loads` have the same form without a printed
    number, the offered load over capacity by figure and setting, and `load_is` says in one sentence
    what a load of 1 is. `causes` maps the title of a group of failures to a paragraph with the run
    that shows the cause, `controls` the mechanism to the mildest setting in which it gives the
    printed effect; both are templates (`harness.claims.texts`). `measured` names files of
    results/fidelity_runs, without `.json`: the same comparison on real engines.
    """

    name: str
    title: str
    citation: str
    figures: tuple[FigureSpec, ...]
    headline: Callable[[Mapping[str, Judged]], str]
    chosen: tuple[str, ...] = ()
    program: str = ""
    facts: tuple[Fact, ...] = ()
    loads: tuple[Fact, ...] = ()
    load_is: str = ""
    causes: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    variations: Mapping[str, str] = field(default_factory=dict)
    code_names: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    code_axes: Mapping[str, str] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)

    def figure(self, name: str) -> FigureSpec:
        """The figure of that name. Raises ValueError, which lists those there are."""
        known = {figure.name: figure for figure in self.figures}
        if name not in known:
            raise ValueError(unknown_name(f"figure of {self.name}", name, dict.fromkeys(known)))
        return known[name]

    def claim(self, id: str, *, figure: str, **facts: Any) -> Callable[[ClaimFunction], Claim]:
        """Decorate the function that computes a claim's effect."""
        return lambda effect: self._add(id, figure=figure, effect=effect, **facts)

    def untested(self, id: str, *, figure: str, because: str, note: str, **facts: Any) -> Claim:
        """A claim that is not tested here; `because` is one of UNTESTED_FOR."""
        if because not in UNTESTED_FOR:
            raise ValueError(f"{id}: {because} is not one of {', '.join(UNTESTED_FOR)}")
        return self._add(id, figure=figure, untested=because, note=note, **facts)

    def _add(self, id: str, *, figure: str, **facts: Any) -> Claim:
        if id in self.claims:
            raise ValueError(f"{self.name} has two claims {id}")
        of = self.figure(figure)
        facts.setdefault("scenarios", of.scenarios)
        facts.setdefault("code", of.code)
        self.claims[id] = Claim(id=id, figure=figure, **facts)
        return self.claims[id]

    def of_figure(self, name: str) -> list[Claim]:
        """The claims that a figure feeds, in the order in which they are written."""
        return [claim for claim in self.claims.values() if claim.figure == name]

    def facts_of(self, figures: Sequence[FigureSpec]) -> list[Fact]:
        """Facts and loads that use a scenario of these figures; all where these are all."""
        runs = {run for one in figures for run in (*one.scenarios, *one.code, *one.also)}
        is_all = len(figures) == len(self.figures)
        every = (*self.facts, *self.loads)
        return [fact for fact in every if is_all or not runs.isdisjoint(fact.scenarios)]


def papers() -> list[str]:
    """Papers that have claims: the folders of systems/ with a claims.py."""
    return sorted(path.parent.name for path in Path(ROOT / "systems").glob("*/claims.py"))


def load_paper(name: str) -> Paper:
    """A paper by the name of its folder. Raises ValueError for one that is not there."""
    if name not in papers():
        raise ValueError(unknown_name("paper", name, dict.fromkeys(papers())))
    paper = import_module(f"systems.{name}.claims").paper
    if not isinstance(paper, Paper):
        raise ClaimError(f"systems/{name}/claims.py has no `paper` of the class Paper")
    return paper
