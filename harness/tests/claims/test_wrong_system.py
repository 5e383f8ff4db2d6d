"""A system that is wrong: no claim of any paper holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness import run
from harness.claims.effects import (
    Cells,
    Effect,
    EffectKind,
    over_settings,
    ratio,
    reduction,
    share_of_seeds,
)
from harness.claims.judge import Source, check, judge, probes
from harness.claims.paper import Claim, ClaimFunction, FigureSpec, Paper, load_paper, papers
from harness.claims.verdicts import Verdict, Word, verdict_of
from harness.runs.figures import FIGURES
from harness.tests.support.configured import composed

SEEDS = 10
Effects = Sequence[tuple[Claim, Effect]]
"""The claims of a paper that have an effect, and their effects where no cell differs."""
Decorator = Callable[[ClaimFunction], Claim]


def as_printed(claim: Claim, effect: Effect) -> Effect:
    """The effect as the paper prints it: a range goes from one end to the other."""
    low, high = claim.paper if isinstance(claim.paper, tuple) else (claim.paper, claim.paper)
    columns = effect.samples.columns
    match effect.kind:
        case EffectKind.TREND | EffectKind.FACT:
            row = np.ones(len(columns))
        case EffectKind.REDUCTION:
            row = np.full(len(columns), 1 - high)
        case EffectKind.RANGE:
            far = max(low, high, key=lambda end: abs(end - 1))
            row = np.linspace(far, low + high - far, len(columns))
        case _:
            row = np.full(len(columns), high)
    return Effect(effect.kind, pd.DataFrame(np.tile(row, (SEEDS, 1)), columns=columns))


def swapped(effect: Effect) -> Effect:
    """What an effect is where the two sides are swapped; a value or bound is missed by far."""
    match effect.kind:
        case EffectKind.RATIO | EffectKind.REDUCTION | EffectKind.RANGE:
            samples = 1 / effect.samples
        case EffectKind.EQUAL:  # no difference is no difference when swapped
            samples = 1.3 * effect.samples
        case EffectKind.ABSOLUTE | EffectKind.AT_MOST:
            samples = 2 * effect.samples
        case EffectKind.AT_LEAST:
            samples = effect.samples / 2
        case EffectKind.TREND:
            samples = -effect.samples
        case EffectKind.FACT:
            samples = 1 - effect.samples
    return replace(effect, samples=samples)


def what_is_printed_holds_and_fails_when_swapped(effects: Effects) -> None:
    for claim, effect in effects:
        printed = as_printed(claim, effect)
        assert verdict_of(printed, claim.paper).word is Word.HOLDS, claim.id
        assert verdict_of(swapped(printed), claim.paper).word is Word.FAILS, claim.id


def no_change_holds_where_only_seeds_differ(effects: Effects) -> None:
    """Figures are lognormal by seed: they differ, but no system and no setting has an effect."""
    by_seed = np.random.default_rng(0).lognormal(0.0, 0.5, 100)
    for claim, effect in effects:
        cells = probes(claim.scenarios)
        if effect.kind not in (
            EffectKind.RATIO,
            EffectKind.REDUCTION,
            EffectKind.RANGE,
            EffectKind.TREND,
        ):
            continue
        free = [figure for figure in FIGURES if (cells[figure] == 1.0).all()]
        noise = by_seed[cells["seed"].to_numpy(int)]
        noisy = cells.assign(**{figure: cells[figure] * noise for figure in free})
        assert claim.effect is not None
        found = verdict_of(claim.effect(noisy), claim.paper)
        assert found.word is not Word.HOLDS, claim.id


def a_faster_system_moves_an_effect_to_where_the_paper_claims_it(
    name: str, effects: Effects
) -> None:
    """Only seconds of the paper's own system change; a claim may read other figures."""
    seconds = [figure for figure in FIGURES if "_s" in figure.replace("_share", "")]
    moved = 0
    for claim, effect in effects:
        cells = probes(claim.scenarios)
        side = "system" if "system" in cells else "policy"
        if side not in cells or effect.kind not in (
            EffectKind.RATIO,
            EffectKind.REDUCTION,
            EffectKind.RANGE,
        ):
            continue
        is_own = cells[side].str.startswith(name).to_numpy()
        faster = cells.assign(
            **{one: np.where(is_own, 0.5, 1.0) for one in seconds if (cells[one] == 1.0).all()}
        )
        assert claim.effect is not None
        found = np.log(claim.effect(faster).samples.to_numpy(float))
        if not (found == 0.0).all():
            ends = claim.paper if isinstance(claim.paper, tuple) else (claim.paper,)
            far = max(ends, key=lambda end: abs(end - 1))
            wanted = np.log1p(-far) if effect.kind is EffectKind.REDUCTION else np.log(far)
            assert (found * wanted >= 0.0).all(), claim.id
            moved += 1
    assert moved >= 3


@pytest.mark.parametrize("name", papers())
def test_claims_of_a_paper(name: str) -> None:
    """In one test: the cells of a paper's scenarios are listed once."""
    effects = check(load_paper(name))
    what_is_printed_holds_and_fails_when_swapped(effects)
    no_change_holds_where_only_seeds_differ(effects)
    a_faster_system_moves_an_effect_to_where_the_paper_claims_it(name, effects)


TINY = """\
# @package _global_
defaults:
  - override /hardware: linear_latency
  - override /workload: chats
  - override /workload/arrivals: whole_seconds
  - override /policy: fcfs_none
  - override /predictor: oracle
  - override /system: fixed
name: tiny
matrix:
  policy: [fcfs_none, ssjf_none]
  workload.arrivals.rate_per_s: [1, 4]
  seed: [0, 1, 2, 3, 4, 5]
hardware: {gpu_count: 1, nvlink_island: 1}
workload: {requests: 20}
"""
JCT, RATES = "jct_s_mean", ["rate_per_s"]


def tiny(system: str, baseline: str) -> Paper:
    """A paper that claims that a system saves 40% of mean JCT."""
    spec = FigureSpec(name="f", shows="JCT", scenarios=("tiny variant=paper",))
    paper = Paper(name="tiny", title="", citation="", figures=(spec,), headline=lambda _: "")
    of, over = {"policy": system}, {"policy": baseline}

    def add(name: str, printed: float | tuple[float, float] = float("nan")) -> Decorator:
        return paper.claim(name, figure="f", where="", says="", quote="", paper=printed)

    @add("reduction", 0.4)
    def _(cells: Cells) -> Effect:
        return reduction(cells, JCT, of=of, over=over, average_over=RATES)

    @add("ratio", 1.7)
    def _(cells: Cells) -> Effect:
        return ratio(cells, JCT, of=over, over=of, average_over=RATES)

    @add("range", (1.6, 1.9))
    def _(cells: Cells) -> Effect:
        return over_settings(cells, JCT, of=over, over=of, settings=RATES)

    @add("fact")
    def _(cells: Cells) -> Effect:
        return share_of_seeds(cells, lambda a, b: a < b, (JCT, of), (JCT, over), settings=RATES)

    return paper


def test_a_scheduler_and_its_baseline_swapped(tmp_path: Path) -> None:
    """Shortest job first and first come first served, run by the command and judged."""
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "tiny.yaml").write_text(TINY, encoding="utf-8")
    words = (f"results={tmp_path}", "workers=1", "tracking=none")
    with composed("+scenario=tiny", f"hydra.searchpath=[file://{tmp_path}]", *words) as config:
        assert run.run(config) == 0

    def verdicts(system: str, baseline: str) -> dict[str, Verdict]:
        paper = tiny(system, baseline)
        source = Source(tmp_path, sensitivity=False)
        return {it.claim.id: it.verdict for it in judge(paper, paper.claims.values(), source)}

    right = verdicts("ssjf_none", "fcfs_none")
    assert {it.word for it in right.values()} == {Word.HOLDS}, right
    wrong = verdicts("fcfs_none", "ssjf_none")
    assert {it.word for it in wrong.values()} == {Word.FAILS}, wrong
    assert {name for name, it in wrong.items() if it.reason == "reversed"} == right.keys() - {
        "fact"
    }
