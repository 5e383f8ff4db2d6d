"""What EcoServe's paper states of its own runs, and loads: measured here, named by its texts."""

from functools import partial

from harness.claims.effects import Measure, absolute, ratio
from harness.claims.paper import Fact
from harness.runs.ceiling import kv_tokens
from systems.ecoserve.effects import (
    ALL_SETTINGS,
    DATA,
    FULL,
    JCT,
    KV,
    LOAD,
    MODELS,
    PAPER_RATES,
    SERVED_ALL,
    SHORT_OF_KV,
    TABLES,
    VLLM,
    DataAndModel,
    against,
    at,
    ceiling_in_backlog,
    load_of,
    mean_tbt,
    over_eight,
    spread,
)
from systems.ecoserve.measures import mean_tokens, provided_share, throughput_per_s

RECOMPUTES = "vLLM recomputes"
"""A variation that texts name."""
OVERDUE_RANGES_S = "[-160,-80,-40,-20,-10,-5,0.2,0.5,2.0]"
BY_BOTH = f"({', then '.join(DATA.values())}: {' / '.join(MODELS.values())})"
BY_DATA, BY_MODEL = (f"({' / '.join(it.values())})" for it in (DATA, MODELS))


def _fact(
    says: str, printed: float, data: str, figure: Measure, *, where: str = "table 2", unit: str = ""
) -> Fact:
    """A figure of EcoServe's own run on a data set, OPT-13B."""
    return Fact(
        says=f"{says}, {DATA[data]}",
        group=f"{says} {BY_DATA}",
        where=where,
        paper=printed,
        unit=unit,
        scenarios=(f"ecoserve_{data}",),
        measure=partial(absolute, figure=figure, at=at(FULL, data)),
        note="cut to fit 2,048 tokens" if (says, data) == ("mean prompt", "bookcorpus") else "",
    )


TABLE_2 = {
    "prompt": {"alpaca": 19.31, "sharegpt": 161.31, "bookcorpus": 1952.11},
    "answer": {"alpaca": 58.41, "sharegpt": 337.99, "bookcorpus": 681.2},
}
COLUMN = {"prompt": "prompt_tokens", "answer": "output_tokens"}
FIGURE_5A = {
    "over": {"alpaca": 0.0262, "sharegpt": 0.0562, "bookcorpus": 0.0512},
    "short": {"alpaca": 0.0930, "sharegpt": 0.1342, "bookcorpus": 0.2192},
}
IN_WORDS = {"over": "KV set aside beyond answers", "short": "KV that answers lack"}
KV_TOKENS = {
    "": ("12 GB", 14_648),
    "_llama33b": ("19.2 GB", 12_019),
    "_opt175b": ("264 GB", 55_949),
}
"""Printed KV of a group, and that over the bytes of a token: layers x 2 x hidden size x 2."""


FACTS = (
    *(
        _fact(f"mean {what}", printed, data, partial(mean_tokens, column=COLUMN[what]))
        for what, by_data in TABLE_2.items()
        for data, printed in by_data.items()
    ),
    *(
        _fact(
            *(IN_WORDS[part], printed, data, partial(provided_share, part=part)),
            where="figure 5a",
            unit="%",
        )
        for part, by_data in FIGURE_5A.items()
        for data, printed in by_data.items()
    ),
    *(
        Fact(
            says=f"tokens of KV, {MODELS[model]}",
            group=f"tokens of KV {BY_MODEL}",
            where="sections 2.1, 4",
            paper=tokens,
            printed=f"{words}: {tokens:,}",
            scenarios=(f"ecoserve_capacity{model}",),
            measure=partial(absolute, figure=kv_tokens, at={"table": TABLES["alpaca"]}),
        )
        for model, (words, tokens) in KV_TOKENS.items()
    ),
    Fact(
        says="mean time between tokens of EcoServe, nine settings",
        where="section 4",
        paper=0.141,
        unit=" s",
        scenarios=SERVED_ALL,
        measure=mean_tbt,
        note="*Contradictions*",
    ),
)


def _said(says: str, figure: Measure, of: str, over: str, setting: DataAndModel) -> Fact:
    data, model = setting
    return Fact(
        says=f"{says}, {DATA[data]}, {MODELS[model]}",
        group=f"{says}, {DATA[data]} {BY_MODEL}" if of != FULL else f"{says} {BY_BOTH}",
        unit="x",
        scenarios=(f"ecoserve_{data}{model}", f"ecoserve_capacity{model}"),
        measure=partial(against, figure=figure, of=of, over=over, settings=(setting,)),
    )


def _at_load(says: str, figure: Measure, of: str, load: float, data: str) -> Fact:
    return Fact(
        says=f"{says} at load {load:g}, {DATA[data]}",
        group=f"{says} at load {load:g} {BY_DATA}",
        unit="x",
        scenarios=(f"ecoserve_rates_{data}",),
        measure=partial(
            ratio,
            figure=figure,
            of={**at(of, data), LOAD: load},
            over={**at(VLLM, data), LOAD: load},
        ),
    )


BESIDE = (
    *(_said("JCT of EcoServe over vLLM's", JCT, FULL, VLLM, it) for it in ALL_SETTINGS),
    *(
        _said("JCT of FastGen over vLLM's", JCT, "fastgen", VLLM, ("alpaca", model))
        for model in MODELS
    ),
    *(
        _at_load("JCT of EcoServe over vLLM's", JCT, FULL, load, data)
        for load in (0.5, 0.85)
        for data in DATA
    ),
    Fact(
        says="throughput over vLLM's of 8 requests, ShareGPT",
        unit="x",
        scenarios=("ecoserve_eight", "ecoserve_sharegpt"),
        measure=over_eight,
    ),
    Fact(
        says="throughput over vLLM's that recomputes, ShareGPT",
        unit="x",
        scenarios=("ecoserve_sharegpt",),
        measure=partial(
            ratio, figure=throughput_per_s, of=at(FULL, "sharegpt"), over=at(VLLM, "sharegpt")
        ),
        variation=RECOMPUTES,
    ),
    *(
        Fact(
            says=f"JCT of SDO over SD's, {DATA[data]}",
            group="JCT of SDO over SD's, OPT-13B (ShareGPT / BookCorpus)",
            unit="x",
            scenarios=(f"ecoserve_{data}",),
            measure=partial(
                ratio, figure=JCT, of=at("ecoserve_sdo", data), over=at("ecoserve_sd", data)
            ),
        )
        for data in SHORT_OF_KV
    ),
    Fact(
        says="KV that EcoServe uses on Alpaca, OPT-13B",
        unit="%",
        scenarios=("ecoserve_alpaca",),
        measure=partial(absolute, figure=KV, at=at(FULL, "alpaca")),
    ),
    *(
        Fact(
            says=f"Alpaca: largest mean JCT over the least by {axis.replace('_', ' ')}, less 1",
            group="Alpaca: largest mean JCT over the least, less 1 (padding / reserve / buffer)",
            unit="%",
            scenarios=(f"ecoserve_{scenario}",),
            measure=partial(spread, policy=FULL, axis=axis, data="alpaca"),
        )
        for scenario, axis in (
            ("padding", "padding"),
            ("reserved", "reserved_share"),
            ("buffer", "buffer_share"),
        )
    ),
    *(
        Fact(
            says=f"ceiling over vLLM, {DATA[data]}, {MODELS[model]}",
            group=f"ceiling of throughput over vLLM's {BY_BOTH}",
            unit="x",
            scenarios=(f"ecoserve_capacity{model}", f"ecoserve_{data}{model}"),
            measure=partial(ceiling_in_backlog, data=data, model=model),
        )
        for data, model in ALL_SETTINGS
    ),
)


LOADS = tuple(
    Fact(
        says=f"{PAPER_RATES[data]:g}/s, {DATA[data]}, {MODELS[model]}",
        group=f"{PAPER_RATES[data]:g}/s, {DATA[data]} {BY_MODEL}",
        scenarios=(f"ecoserve_capacity{model}", f"ecoserve_{data}{model}"),
        measure=partial(load_of, data=data, model=model),
    )
    for data, model in ALL_SETTINGS
)
