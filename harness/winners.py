"""Which policy wins where: the last part of `python -m harness league`, or alone with `--winners`.

Of the league's policies the `COUNT` of least median regret over loads of requests are served in
settings of load, KV and spread of answers, on `LOAD` and in the league's limits. Says by figure in
how many settings each of them wins, in which, and in how many none does. Writes league/winners.csv
and winners.json, the picture league_winners and a part of the league's page.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import api
from harness.conditions.cells import WAITING, Ground, ground_of
from harness.conditions.trials import Trials
from harness.conditions.winners import GAIN, OfWinners, claim_id
from harness.conditions.wins import Wins, won_cells
from harness.config.engine_limits import LIMITS
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.costs.model_facts import model_facts
from harness.league import (
    KINDS,
    LOADS,
    REFERENCE,
    kinds_of,
    league_of,
    load_words,
    model_of_load,
    table_of,
    write_part,
)
from harness.report.render import render
from harness.runs import published
from harness.where import LONGEST_TOKENS, tried_cells
from plots import style
from plots import winners as pictures

LOAD = "sharegpt"
"""Whose lengths are reshaped; its arrivals are Poisson."""
KIND = LOADS[LOAD]
MODEL = model_of_load(LOAD)
COUNT, ALIKE = 5, 0.95
REQUESTS = 1000
"""Of a setting: more than the league's, so that at loads below 1 requests wait, too."""
LOG2_CELLS, SEEDS, MOST_SEEDS = 7, 3, 5
LITTLE = 0.05
"""Share of the reference's JCT: below it an order of waiting requests has little to change."""
DIMENSIONS: Mapping[str, Any] = {
    "load": {"range": [0.3, 2.0], "reference": 0.95},
    "kv_share": {"range": [0.05, 1.0], "reference": 1.0},
    "spread": {"range": [0.3, 2.0], "reference": 1.0},
}


def strongest(found: pd.DataFrame) -> dict[str, list[str]]:
    """The `COUNT` policies of least median regret, each with those that are about equal.

    Policies of which `ALIKE` of the figures differ by less than `GAIN` count as one, under the
    reference's name where that is one of them. Raises ValueError for a league without loads of
    requests.
    """
    names = kinds_of(found).get(KIND)
    if not names:
        raise ValueError(f"the league has no load of {KIND}: run python -m harness league {LOAD}")
    rows = found[found["load"].isin(names) & found["figure"].isin(KINDS[KIND]["judged"])]
    values = rows.pivot_table("value", "policy", ["load", "share", "kv", "figure"])
    same: list[list[str]] = []
    for policy in map(str, table_of(found, names).index):
        alike = [it for it in same if _alike(values.loc[[it[0], policy]])]
        if alike:
            alike[0].append(policy)
        else:
            same.append([policy])
    ordered = [sorted(it, key=lambda name: name != REFERENCE) for it in same[:COUNT]]
    return {first: others for first, *others in ordered}


def _alike(two: pd.DataFrame) -> bool:
    """Whether two rows of figures are about equal."""
    one, other = two.to_numpy(np.float64)
    near = np.isclose(one, other, rtol=GAIN, atol=0.0, equal_nan=True)
    return bool(near.mean() >= ALIKE)


def served_as(policy: str) -> str:
    """The file of a policy that league.csv names. Raises ValueError for one without a file."""
    name = str(KINDS[KIND].get("renamed", {}).get(policy, policy))
    if name not in (known := api.policies_of(KIND)):
        said = f"league.csv has {policy}, which is none of {', '.join(known)}"
        raise ValueError(f"{said}: run python -m harness league")
    return name


def question_of(policies: Sequence[str]) -> OfWinners:
    """Which of these policies wins, in the figures of the league's picture."""
    figures = tuple(KINDS[KIND]["drawn"])
    served = [*dict.fromkeys((*policies, REFERENCE))]  # loads are shares of the reference's
    content: dict[str, Any] = {
        "claims": {claim_id(it, figure): None for figure in figures for it in policies},
        "scenario": KIND,
        "words": [
            *load_words(LOAD),
            f"workload.requests={REQUESTS}",
            word("++matrix", {"policy": served, "seed": [0]}),
        ],
        "baseline": {"policy": REFERENCE},
        "log2_cells": LOG2_CELLS,
        "log2_most": LOG2_CELLS,  # a policy that seldom wins doubles no sample
        "seeds": SEEDS,
        "most_seeds": MOST_SEEDS,
        "backlog": REQUESTS,
        "longest_output_tokens": LONGEST_TOKENS,
        "dimensions": DIMENSIONS,
    }
    return OfWinners(tuple(policies), figures, content)


def write_winners(*, publish: bool) -> None:
    """Serve the strongest policies of the league that is there, and write which one wins where.

    Raises ValueError where there is no league, or one of policies that are no longer served.
    """
    folder = published.place("", publish=publish)
    groups = strongest(league_of(folder))
    files = {served_as(policy): policy for policy in groups}
    question = question_of([*files])
    ground = ground_of(question.space)
    kept = published.place("league", publish=False) / "winners_cells.csv"
    with Trials(question) as trials:
        tried = tried_cells(question, ground, trials, kept)
    won = won_cells(question, tried)
    parts = [Wins(question, won, figure) for figure in question.figures]
    names = {
        "same": {file: groups[policy] for file, policy in files.items() if groups[policy]},
        "renamed": {file: policy for file, policy in files.items() if file != policy},
    }
    _write(folder, parts, content_of(parts, ground, tried) | names)


def content_of(parts: Sequence[Wins], ground: Ground, tried: pd.DataFrame) -> dict[str, Any]:
    """What is stored of the winners, but for other names of policies."""
    question, plain = parts[0].question, ground.baseline.plain
    kv_bytes = int(plain["hardware"]["kv_bytes"])
    figures = {
        one.figure: {"sentence": one.sentence, "counts": one.counts, "tied": one.ties}
        for one in parts
    }
    return {
        "basis": ground.basis.replace(str(MODEL.relative_to(ROOT)), MODEL.parent.name),
        "policies": [*question.policies],
        "reference": REFERENCE,
        "gain": GAIN,
        "load": LOAD,
        "size": f"{REQUESTS:,} requests",
        "cells": len(tried),
        "limits": {limit: plain["engine"][limit] for limit in LIMITS},
        "little_waiting": {"below": LITTLE, "share": float((tried[WAITING] < LITTLE).mean())},
        "seeds": [question.space.seeds, question.space.most_seeds],
        "ranges": {one.name: [one.low, one.high] for one in question.space.dimensions},
        "kv_tokens": kv_bytes // model_facts(str(MODEL)).kv_bytes_per_token,
        "figures": figures,
    }


def _write(folder: Path, parts: Sequence[Wins], content: Mapping[str, Any]) -> None:
    text = parts[0].won.to_csv(index=False, float_format="%.4g")
    published.write(folder / "league" / "winners.csv", text)
    published.write(folder / "league" / "winners.json", json.dumps(content, indent=1) + "\n")
    about = (
        f"{content['cells']} settings of {LOAD}, {content['basis']}. A policy wins where it is "
        f"better than each of the others by {GAIN:.0%} or more, beyond noise; together: none of "
        f"these wins, and all others are behind. Shading: the most frequent winner around."
    )
    for path in style.save(pictures.draw(parts, about), folder / "figures" / "league_winners"):
        print(f"wrote {published.shown(path)}")
    part = render("winners.md.j2", **content)
    write_part(folder, "winners", part)
    print(part)
