"""What the paper of Hermes claims, and how each claim is computed from runs.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851
Program    github.com/NephrenCake/Hermes, branch ATC25 @6f8cf70: its scheduler writes the names of
           files and the log lines that the plot scripts of figures 9 to 11 read (branch SC25
           @3894339, which has the figures themselves and another scheduler)
Bars       of figures 9 to 12: heights of the vector bars in SC25, over the pitch of the ticks
ACT        application completion time: from the arrival of an application to its last unit's end
1x, 2x, 3x windows of 30, 15 and 10 minutes in which the same applications arrive
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from harness.claims.effects import (
    Cells,
    Effect,
    EffectKind,
    Measure,
    absolute,
    at_least,
    at_most,
    equal,
    figures,
    over_settings,
    ratio,
    reduction,
    share_of_seeds,
    share_ratio,
    trend,
)
from harness.claims.paper import CODE, REFERENCE, Fact, FigureSpec, Judged, Paper
from harness.claims.texts import NOT_RUN, joined, ours_of
from systems.hermes.measures import (
    BACKLOGGED,
    answer_tokens_per_s,
    backlog_s,
    blocks_found_share,
    decode_ms,
    median_act_s,
    misses_avoided,
    policy_ms,
    prompt_tokens_per_s,
    prompts_share,
)

ACT, TAIL, MET = "act_s_mean", "act_s_p95", "deadlines_met"
WAIT, IDLE = "backend_wait_s_mean", "backend_idle_s_mean"
WINDOW, MODEL, REFINES, BUCKETS = "duration_s", "llm", "refines", "buckets"
KNOB = "effectiveness"
HERMES = {"policy": "hermes_gittins"}
SLACK = {"policy": "hermes_lstf"}
EDF = {"policy": "edf"}
BASELINES: Mapping[str, tuple[str, str]] = {
    "vllm": ("vllm_0_4", "vLLM"),
    "parrot": ("parrot", "Parrot"),
    "vtc": ("vtc_calls", "VTC"),
}
"""What Hermes is compared with: the policy of each, and its name."""
BARS: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "fig9": {1800: (75.7, 329, 325, 228), 900: (115, 587, 633, 451), 600: (152, 674, 758, 514)},
    "fig10": {1800: (192, 588, 417, 633), 900: (315, 780, 531, 675), 600: (346, 833, 568, 696)},
}
"""Mean ACT in s as drawn, by window in s: Hermes, vLLM, Parrot, VTC."""
MET_BARS = {"Hermes": 0.640, "EDF": 0.320, "vLLM": 0.245, "Parrot": 0.245, "VTC": 0.230}
"""Deadlines met in figure 11, of all."""
PARTS_BARS = {
    "no refinement": (1.158, 1.244),
    "neither": (1.474, 1.542),
    "true demand": (0.908, 0.929),
}
"""Mean ACT over that of Hermes in figure 12, Llama-2-7b and 13b."""
BLOCK_BARS: Mapping[str, tuple[float, ...]] = {
    "Hermes": (0.37, 0.64, 0.85),
    "EPWQ": (0.27, 0.55, 0.62),
    "LRU": (0.18, 0.25, 0.39),
}
"""Share of all prompt blocks that are found in figure 13a: 8, 16 and 32 GB."""
ADAPTER_BARS = {"Hermes": 0.878, "EPWQ": 0.724, "LRU": 0.574}
"""Misses avoided in figure 13b."""
SMALL_KINDS, MEDIUM_KINDS, LARGE_KINDS = (
    ("EV", "FEV", "CC", "ALFWI", "KBQAV"),
    ("CG", "PE"),
    ("DM", "MRS"),
)
ONCE = {WINDOW: 1800}
"""The window of 1x."""
THRICE = {WINDOW: 600}
"""The window of 3x."""
SMALL, LARGE = {MODEL: "Llama-2-7b-hf"}, {MODEL: "Llama-2-13b-hf"}
HITS, CAPACITY = "backend_hits", "capacity_bytes"
CACHED = {"system": "caching_hermes"}
"""Hermes' cache, of contexts."""
CACHES: Mapping[str, tuple[str, str]] = {
    "lru": ("caching_lru", "LRU"),
    "epwq": ("caching_epwq", "EPWQ"),
}
"""What it is compared with: the system of each, and its name."""


ROOFLINE, SEED_0 = "the roofline's A100", "kinds of the program's seed 0"
BY_SHARE, BY_WORK = "prices of tokens 1 : 6", "prices of tokens 1 : 6, nothing outside the LLM"
AT_1X, AT_1000 = "3,000 applications in 30 minutes", "1,000 applications in 15 minutes"
"""Variations that texts name."""


def headline(judged: Mapping[str, Judged]) -> str:
    """Figures 9, 10 and 11: at the reference, with the program's applications, and what decides."""

    def three(figure: str, setting: str = REFERENCE) -> str:
        """Mean ACT against vLLM, Parrot and VTC."""
        found = [judged[f"{figure}.act-{base}"].verdicts.get(setting) for base in BASELINES]
        shown = [ours_of(one, "%") for one in found if one]
        text = joined(shown, short=True) if shown else NOT_RUN
        return text if text.startswith("takes") or text == NOT_RUN else f"saves {text}"

    def times(id: str, setting: str = REFERENCE) -> str:
        found = judged[id].verdicts.get(setting)
        return ours_of(found, judged[id].claim.unit).short if found else NOT_RUN

    return (
        "**Against vLLM / Parrot / VTC Hermes "
        f"{three('fig9')} of the mean application completion time (ACT) on one A100 at the 1x load "
        "of the paper's text and the tokens per second of a log of its program (paper: 77 / 76.7 / "
        f"66.7%).** With the 200 applications of that program it {three('fig9', CODE)}, with the "
        f"paper's mix as the program's seed draws it, it {three('fig9', SEED_0)}, and at the speed "
        f"of a roofline A100 it {three('fig9', ROOFLINE)}: what it saves is waiting, which grows "
        f"with load. On eight H800 at 3x it {three('fig10')} (58.5 / 39.1 / 50.3%) where tokens "
        f"have the program's prices, {three('fig10', BY_SHARE)} where they are priced by their "
        f"share of a batch, and {three('fig10', BY_WORK)} where seconds outside the LLM do not "
        f"count either; at 1x it {three('fig10', AT_1X)}, with the program's 1,500 applications "
        f"{three('fig10', CODE)}. Eq. 2 meets {times('fig11.deadline')} as many deadlines as EDF "
        f"(2x), the rule of risk in its program {times('fig11.deadline', CODE)}."
    )


def _drawn(order: str) -> str:
    """The name of a variation in which kinds are drawn from seed 0 in this order."""
    return "workload.kind_draw=" + _text({"seed": 0, "order": order.split()})


def _priced(prompt_token_s: float, output_token_s: float) -> str:
    """The name of a variation in which tokens have these prices."""
    prices = {"prompt_token_s": prompt_token_s, "output_token_s": output_token_s}
    return f"policy.graphs={_text(prices)}"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def bar(name: str, policy: str, window: int) -> Fact:
    """A drawn bar of figure 9 or 10: the mean ACT of a baseline."""
    base, said = BASELINES[policy]
    at = {"policy": base} | ({WINDOW: window} if name == "fig9" else {})
    scenario = {"fig9": "hermes_windows", "fig10": "hermes_h800"}[name]
    intensity = {1800: "1x", 900: "2x", 600: "3x"}[window]
    return Fact(
        says=f"mean ACT of {said}, {'one A100' if name == 'fig9' else 'eight H800'}, {intensity}",
        where=f"bar of figure {name.removeprefix('fig')}a",
        paper=BARS[name][window][1 + list(BASELINES).index(policy)],
        unit=" s",
        scenarios=(scenario,),
        code=(f"{scenario}_code",),
        measure=partial(absolute, figure=ACT, at=at),
        note="load below 1" if name == "fig9" and window == 1800 else "",
    )


LOG = "log of its program"


def _engine(says: str, paper: float, unit: str, figure: Measure, note: str = "") -> Fact:
    """A fact of the engine, in a backlog of the applications of figure 9."""
    return Fact(
        says=says,
        where=LOG,
        paper=paper,
        unit=unit,
        scenarios=("hermes_capacity",),
        code=("hermes_capacity_code",),
        measure=partial(absolute, figure=figure, at={}),
        note=note,
    )


def _size(says: str, paper: float, kinds: tuple[str, ...], bound: Callable[..., Effect]) -> Fact:
    """A size of applications: median ACT of some kinds under vLLM at 1x."""
    return Fact(
        says=f"median ACT of {says}, vLLM at 1x",
        where="section 5.1",
        paper=paper,
        printed=f"{'below' if bound is at_most else 'above'} {paper / 60:.0f} min",
        unit=" s",
        scenarios=("hermes_windows",),
        code=("hermes_windows_code",),
        measure=partial(bound, figure=median_act_s(*kinds), at={"policy": "vllm_0_4", **ONCE}),
    )


FACTS = (
    _engine("answer tokens/s in a backlog", 260, "", answer_tokens_per_s),
    _engine("prompt tokens/s in a backlog", 2133, "", prompt_tokens_per_s),
    _engine(
        "decode of a backlog",
        53.7,
        " ms",
        decode_ms,
        "fewer calls at once in the log, which swaps",
    ),
    Fact(
        says="decode of a backlog, eight H800",
        unit=" ms",
        scenarios=("hermes_h800_capacity",),
        measure=partial(absolute, figure=decode_ms, at={}),
    ),
    *(
        Fact(
            says=f"seconds of a backlog that go to prompts, {gpus}",
            unit="%",
            scenarios=(scenario,),
            code=(f"{scenario}_code",),
            measure=partial(absolute, figure=prompts_share, at={}),
        )
        for gpus, scenario in (
            ("one A100", "hermes_capacity"),
            ("eight H800", "hermes_h800_capacity"),
        )
    ),
    *(bar("fig9", policy, 1800) for policy in BASELINES),
    bar("fig9", "vllm", 600),
    *(
        replace(one, says=f"{one.says}, {SEED_0}", code=(), note="", variation=SEED_0)
        for one in (bar("fig9", policy, 1800) for policy in ("vllm",))
    ),
    replace(
        bar("fig9", "vtc", 1800),
        says="mean ACT of VTC by kind, one A100, 1x",
        code=(),
        measure=partial(absolute, figure=ACT, at={"policy": "vtc", **ONCE}),
    ),
    *(bar("fig10", policy, 600) for policy in BASELINES),
    *(
        Fact(
            says=f"deadlines met by {name}",
            where="bar of figure 11",
            paper=MET_BARS[name],
            unit="%",
            scenarios=("hermes_deadlines",),
            code=("hermes_deadlines_code",),
            measure=partial(absolute, figure=MET, at={"policy": policy}),
        )
        for name, policy in (("EDF", "edf"),)
    ),
    Fact(
        says="prompt blocks found by LRU, 8 GB",
        where="bar of figure 13a",
        paper=BLOCK_BARS["LRU"][0],
        unit="%",
        scenarios=("hermes_contexts",),
        measure=partial(
            absolute, figure=blocks_found_share, at={"system": "caching_lru", CAPACITY: 8e9}
        ),
    ),
    *(
        Fact(
            says=f"misses of adapters avoided by {name}",
            where="bar of figure 13b",
            paper=ADAPTER_BARS[name],
            unit="%",
            scenarios=("hermes_adapters",),
            measure=partial(absolute, figure=misses_avoided, at={"system": system}),
        )
        for system, name in (("caching_epwq", "EPWQ"), ("caching_hermes_adapters", "Hermes"))
    ),
    _size("small applications", 60, SMALL_KINDS, at_most),
    _size("medium applications", 60, MEDIUM_KINDS, at_least),
    _size("large applications", 600, LARGE_KINDS, at_least),
)


def _load(scenario: str, says: str, window_s: float, *, has_code: bool = True) -> Fact:
    """Offered load over what vLLM serves of a backlog."""
    return Fact(
        says=says,
        scenarios=(scenario,),
        code=(f"{scenario}_code",) * has_code,
        measure=lambda cells: Effect(EffectKind.ABSOLUTE, figures(cells, backlog_s, {}) / window_s),
    )


LOADS = (
    *(
        _load("hermes_capacity", f"figure 9, one A100, {name}", window_s)
        for name, window_s in (("1x", 1800), ("2x", 900), ("3x", 600))
    ),
    replace(
        _load("hermes_capacity", f"figure 9, one A100, 1x, {SEED_0}", 1800, has_code=False),
        variation=SEED_0,
    ),
    _load("hermes_h800_capacity", "figure 10, eight H800, 3x", 600),
    _load("hermes_contexts_capacity", "figure 13a, contexts", 900, has_code=False),
    _load("hermes_adapters_capacity", "figure 13b, adapters", 1500, has_code=False),
)

CAUSES: Mapping[str, str] = {
    "Absolute seconds": (
        "Ten draws of the text's mix have about three document merges in 300 applications: a load "
        "of {fact: figure 9, one A100, 1x} at 1x and {fact: mean ACT of vLLM, one A100, 1x} under "
        "vLLM (bar: 329 s). As seed 0 of the program draws it (8 merges, a chance of 1%) load and "
        f"bar come out: {{fact: figure 9, one A100, 1x, {SEED_0}}}, "
        f"{{fact: mean ACT of vLLM, one A100, 1x, {SEED_0}}}."
    ),
    "Figure 9, one A100": (
        "What Hermes saves is waiting, as loads above and figure *loads* show: over vLLM "
        "{fig9.act-vllm@prefix caching} where prompts share all that they can and nearly no call "
        "waits (variations of `hermes_windows`)."
    ),
    "Figure 10, eight H800": (
        "3,000 applications in 10 minutes are a load of {fact: figure 10, eight H800, 3x}, so that "
        "the order decides. An answer token that costs 600 prompt tokens leaves prompts out of the "
        "ranks, and these take {fact: seconds of a backlog that go to prompts, eight H800} of the "
        "seconds there. "
        "Priced 1 : 6, seconds outside the LLM outweigh tokens. The program's 1,500 applications "
        "are a load of {fact: figure 10, eight H800, 3x@code} (variations of `hermes_h800`)."
    ),
    "Figure 11, deadlines": (
        "By eq. 2 applications that are late come first, and hold the GPU while others become "
        "late. Against EDF: {fig11.deadline} by eq. 2; "
        "{fig11.deadline@the program's rule of risk} by the program's rule of risk at the same "
        "deadlines, which puts late ones behind; {fig11.deadline@code} with its deadlines and "
        "applications, where EDF itself meets {fact: deadlines met by EDF@code} (bar: 32%; "
        "`hermes_deadlines_code`)."
    ),
    "Figure 12, Gittins": (
        "Without refinement: {fig12.no-refinement}; without Gittins too: {fig12.no-gittins}. Ranks "
        "by the mean order these kinds of applications as well, with and without refinement (bars "
        "of figure 12). Where running calls stay: {fig12.no-refinement@running calls stay} and "
        "{fig12.no-gittins@running calls stay}."
    ),
    "Figure 13, caches": (
        "Contexts: 500 applications are a load of {fact: figure 13a, contexts}; with 1,000, which "
        f"the program plots, Hermes saves {{fig13.kv-act-lru@{AT_1000}}} of LRU's and "
        f"{{fig13.kv-act-epwq@{AT_1000}}} of EPWQ's mean ACT. Here each prompt extends the context "
        "before it, so that LRU finds most blocks. Adapters: the printed 21.1% is the ratio of "
        "drawn bars, which count misses avoided: "
        "{fact: misses of adapters avoided by Hermes} and "
        "{fact: misses of adapters avoided by EPWQ} here."
    ),
}
"""Groups of failures and why."""
CONTROLS: Mapping[str, str] = {
    "Completion times, eight H800": "the program's 1,500 applications (`hermes_h800_code`).",
    "Deadlines": "none found; nearest the program's rule and deadlines: {fig11.deadline@code}.",
}
"""The mildest setting in which a mechanism gives what is printed."""

paper = Paper(
    name="hermes",
    title="Hermes: applications by the Gittins rank of their demand",
    citation=(
        "Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling, "
        "arXiv 2506.14851"
    ),
    figures=(
        FigureSpec(name="sec22", shows="a small application behind a large one"),
        FigureSpec(name="fig2", shows="seconds to warm up backends"),
        FigureSpec(name="fig3", shows="lengths of prompts and answers of one unit"),
        FigureSpec(name="fig6", shows="correlation of demands of dependent units"),
        FigureSpec(name="fig7", shows="two applications that Gittins and SRPT order differently"),
        FigureSpec(
            name="fig9",
            shows="completion times on one A100, in windows of 30, 15 and 10 minutes",
            scenarios=("hermes_windows",),
            code=("hermes_windows_code",),
            also=("hermes_capacity",),
            plot="plots.hermes_figures:windows",
        ),
        FigureSpec(
            name="fig10",
            shows="completion times of 3,000 applications on eight H800, in 10 minutes",
            scenarios=("hermes_h800",),
            code=("hermes_h800_code",),
            also=("hermes_h800_capacity",),
            plot="plots.hermes_figures:eight",
        ),
        FigureSpec(
            name="fig11",
            shows="deadlines met, of all and by how loose they are",
            scenarios=("hermes_deadlines",),
            code=("hermes_deadlines_code",),
            plot="plots.hermes_figures:deadlines",
        ),
        FigureSpec(
            name="fig12",
            shows="Hermes without refinement and without Gittins, and with true demand",
            scenarios=("hermes_ablation",),
            plot="plots.hermes_figures:ablation",
        ),
        FigureSpec(
            name="fig13",
            shows="hit ratios of contexts and of LoRA adapters in host memory",
            scenarios=("hermes_contexts", "hermes_adapters"),
            also=("hermes_contexts_capacity", "hermes_adapters_capacity"),
            plot="plots.hermes_figures:caches",
        ),
        FigureSpec(
            name="fig14",
            shows="prewarming: seconds saved and wasted against its knob",
            scenarios=("hermes_prewarming",),
            also=("hermes_on_demand",),
            plot="plots.hermes_figures:prewarming",
        ),
        FigureSpec(
            name="fig15",
            shows="milliseconds of a decision, against the window and the number of buckets",
            scenarios=("hermes_buckets",),
            plot="plots.hermes_figures:overhead",
        ),
        FigureSpec(
            name="loads",
            shows="mean and P95 of completion times against load, VTC by calls and by kind",
            also=("hermes_loads", "hermes_capacity"),
            plot="plots.hermes_figures:loads",
        ),
    ),
    headline=headline,
    chosen=(
        "Applications: the runs that the authors recorded; every second one is known to policies, "
        "the others are served. LLM reasoning (LLMR) has no recorded run.",
        "Mix: 300 and 3,000 applications, small, medium and large ones as the text has them, drawn "
        "by ten seeds (three of 3,000, and of Llama-2-13b); which kind within each, as its "
        "program. Document merging (DM) is 1% of applications and most of the load. The program's "
        "column has the 200 and 1,500 applications of its scripts.",
        "Costs: on one A100 iterations take 2.3 times as long as the roofline's, which gives the "
        "tokens per second of the log; it has another mix, swaps, and names no GPU. No log is of "
        "eight H800: the roofline as it is.",
        "Arrivals: the first 300 s of Mooncake's conversations, stretched. Context: "
        "12,000 tokens as the program, beyond the 4,096 of Llama-2; 8,192 on H800.",
        "Price of a token: 0.1 ms of a prompt and 60 ms of an answer, fixed in its program. The "
        "text has the average processing time of a token in the environment, without a number: "
        "between two tokens of an answer that is near 60 ms on both machines, "
        "as a share of a batch six times a prompt's token: a variation.",
        "Running calls stay (`--non-preempt` in the scripts of figures 9 to 11; the text is "
        "silent), in figure 12 they are swapped out, as in its script; watermark 1%, of "
        "vLLM 0.4.3.",
        "VTC counts calls by application, as its program; the text names no client. VTC by kind "
        "or tokens, faster at 1x and farther from the bar, is in figure 9.",
        "Not built of the program: Bayesian networks, its own rank in the rule of risk, "
        "DM at 0.8 of its tokens, one prompt an iteration, contexts dropped after 90 s, at most "
        "ten adapters in a batch.",
        "Deadlines: 1.2, 1.5 or 2 times the mean seconds that known runs of the kind take alone. "
        "Of the run itself, as in the paper, they would tell a policy what is to come. The program "
        "has 0.7 of the longest recorded service, over a number by kind.",
        "No prompt is shared, as in vLLM 0.4.3.",
        "Caches: an application reads its adapter, or the KV of its context, which is "
        "cached whole in host memory. A call that misses its adapter waits for the disk, as does "
        "its iteration; a context that is missed is computed: reading it takes 60 times as long "
        "by its program. Mix, disk and 60% of GPU memory: its program.",
    ),
    facts=FACTS,
    loads=LOADS,
    load_is=(
        f"Load 1: as vLLM answers a backlog of the same applications, while {BACKLOGGED} calls and "
        "more wait. Figures 11 and 12 are figure 9's 2x and 3x."
    ),
    variations={
        "hardware.scale_seconds=1": ROOFLINE,
        _drawn("DM MRS CG PE CC KBQAV EV FEV ALFWI"): SEED_0,
        _priced(1.5e-4, 9e-4): BY_SHARE,
        _priced(5e-5, 3e-4): BY_SHARE,
        _priced(1.0, 6.0): BY_WORK,
        "policy.rule.watermark=0.2": "a watermark of 20%",
        "policy.displaces=swap": "running calls swapped out",
        "policy.displaces=recompute": "running calls computed again",
        "policy.displaces=null": "running calls stay",
        "policy.objective=risk": "the program's rule of risk",
        "engine.prefix_caching=true": "prefix caching",
        "workload.arrivals.windows=353": "arrivals of the trace's whole hour",
        "system.prewarm.reading=printed": "eq. 3 as printed",
        "system.prewarm.effectiveness=0.1": "K = 0.1",
        "workload.applications=1000": AT_1000,
        "workload.contexts.load_token_s=0.00057": "a disk ten times as fast",
        "workload.adapters.load_s=0.1": "adapters loaded in 0.1 s",
        "workload.arrivals.duration_s=1800": AT_1X,
    },
    causes=CAUSES,
    controls=CONTROLS,
    measured=("hermes_real",),
    code_names={
        "policy": {
            "hermes_program": "hermes_gittins",
            "hermes_risk": "hermes_lstf",
            "hermes_lstf": "eq. 2",
        }
    },
)

# Section 2.2 and figures 2 to 7: motivation.

paper.untested(
    "sec22.order",
    figure="sec22",
    where="section 2.2",
    paper=52.8 / 40.3,
    says="mean ACT of a small behind a large application, over that of the reverse order",
    quote="executing a small application (KBQAV in Fig. 1(i)) after a large application (DM in "
    "Fig. 1(a)) yields an average ACT of 52.8s, yet with the reversed order it is only 40.3s.",
    because="not built",
    note="which runs is not stated",
)
paper.untested(
    "fig2.warmup",
    figure="fig2",
    where="Fig. 2, section 2.2",
    paper=18.0,
    says="seconds to warm up a backend over those of a call of 1,000 and 100 tokens, up to",
    quote="the typical warm-up time of a series of backend contents, which are up to 18x of the "
    "inference time of a typical inference task",
    because="needs hardware",
    note="its server's seconds (containers here: `harness.tools.fidelity.cold_starts`)",
)
paper.untested(
    "fig3.stability",
    figure="fig3",
    where="Fig. 3, section 2.3",
    printed="stable",
    says="lengths of a unit's prompts and answers are stable over runs",
    quote="the output token length of the merge request in DM application is around 1000, yet for "
    "the generate-query request in KBQAV application it is between 10 and 50.",
    because="fed in",
    note="lengths of the recorded runs",
)
paper.untested(
    "fig6.correlation",
    figure="fig6",
    where="Fig. 6, section 3.2",
    printed="above 0.5",
    says="demands of dependent units correlate",
    quote="For KBQAV, each unit's output length is strongly correlated to its input length; yet "
    "for DM, each unit's input length is highly-related to the upstream unit's input length.",
    because="fed in",
    note="recorded runs: 0.88 and 0.54 for KBQAV, 0.91 to 0.98 for DM",
)
paper.untested(
    "fig7.gittins-order",
    figure="fig7",
    where="Fig. 7, section 3.3",
    printed="reversed",
    says="SRPT by the mean picks KBQAV, Gittins code generation",
    quote="under SPRT it is the former that is scheduled first, yet under the Gittins policy it is "
    "the latter (with a lower Gittins rank). Regarding the probability to complete within 9 "
    "seconds, for FacTool_KBQA it is 0.3%, yet for Code_Generation it is 16%",
    because="needs data",
    note="how far both were is not stated",
)

# Figures 9 and 10: completion times.

PARTS = {"act": (ACT, "mean ACT saved"), "p95": (TAIL, "P95 of ACT saved")}
ON_A100 = (
    "in the LLaMA2-7B experiment under 1x workload intensity, the ACT performance of Hermes is "
    "77.0% (76.7% and 66.7%) better than vLLM (Parrot and VTC) ... the P95 ACT performance of "
    "Hermes is 82.4% (69.0% and 74.1%) better"
)
ON_H800 = (
    "in the LLaMA3-70B experiment under 3x workload intensity, the ACT performance of Hermes is "
    "58.5% (39.1% and 50.3%) better ... the P95 ACT performance of Hermes is 62.2% (21.7% and "
    "45.8%) better"
)


def saved(cells: Cells, figure: str, over: str, at: Mapping[str, int]) -> Effect:
    """What Hermes saves of the figure of another policy, in one window."""
    return reduction(cells, figure, of={**HERMES, **at}, over={"policy": over, **at})


def _each(figure: str, part: str, setting: str) -> str:
    """Against vLLM, Parrot and VTC, in a text."""
    return " / ".join(f"{{{figure}.{part}-{base}@{setting}}}" for base in BASELINES)


def _why_waiting(part: str) -> str:
    if part != "act":
        return "as for the mean"
    return (
        f"waiting is saved, and load decides: {_each('fig9', part, ROOFLINE)} at a roofline's "
        f"speed, {_each('fig9', part, SEED_0)} with {SEED_0}"
    )


def _why_price(part: str) -> str:
    if part != "act":
        return "as for the mean"
    return f"the price of a token: {_each('fig10', part, BY_WORK)} priced by the work of the GPUs"


for _name, _quote, _at, _words, _why, _printed in (
    (
        *("fig9", ON_A100, ONCE, "one A100, 1x", _why_waiting),
        ((0.770, 0.767, 0.667), (0.824, 0.690, 0.741)),
    ),
    (
        *("fig10", ON_H800, {}, "eight H800, 3x", _why_price),
        ((0.585, 0.391, 0.503), (0.622, 0.217, 0.458)),
    ),
):
    for (_part, (_figure, _says)), _values in zip(PARTS.items(), _printed, strict=True):
        for (_base, (_policy, _baseline)), _value in zip(BASELINES.items(), _values, strict=True):
            paper.claim(
                f"{_name}.{_part}-{_base}",
                figure=_name,
                where=f"Fig. {_name.removeprefix('fig')}{'a' if _part == 'act' else 'b'}, "
                "section 5.2",
                paper=_value,
                unit="%",
                says=f"{_says} over {_baseline}, {_words}",
                group=f"{_says}, {_words} (over vLLM / Parrot / VTC)",
                quote=_quote,
                why=_why(_part),
            )(partial(saved, figure=_figure, over=_policy, at=_at))

# Figure 11: deadlines.


@paper.claim(
    "fig11.deadline",
    figure="fig11",
    where="Fig. 11, section 5.2",
    paper=2.0,
    says="deadlines met by Hermes-DDL over those met by EDF",
    quote="It shows that Hermes-DDL achieves the highest DSR among all the schemes evaluated, "
    "delivering a 1x improvement over EDF.",
    why="eq. 2 puts late applications first; the program's rule of risk: "
    "{fig11.deadline@the program's rule of risk}, with its deadlines too: {fig11.deadline@code}",
)
def _(cells: Cells) -> Effect:
    sides = MET_BARS["Hermes"], MET_BARS["EDF"]
    return share_ratio(absolute(cells, MET, SLACK), absolute(cells, MET, EDF), paper=sides)


# Figure 12: what each part gives.

FULL = {**HERMES, REFINES: True, "predictor": "none", **SMALL}
ORACLE = {"policy": "hermes_oracle", REFINES: False, "predictor": "application_oracle", **SMALL}
WITHOUT = "Without online correlation analysis, the average ACT would be inflated by 15.3%"


@paper.claim(
    "fig12.no-refinement",
    figure="fig12",
    why="less if calls stay: *Figure 12*",
    where="Fig. 12, section 5.3",
    paper=1.153,
    says="mean ACT without refinement",
    quote=f"{WITHOUT} with the LLaMA-7B model.",
)
def _(cells: Cells) -> Effect:
    return ratio(cells, ACT, of={**FULL, REFINES: False}, over=FULL)


@paper.claim(
    "fig12.no-gittins",
    figure="fig12",
    why="means order as well: *Figure 12*",
    where="Fig. 12, section 5.3",
    paper=1.475,
    says="mean ACT without refinement and Gittins",
    quote="When the Gittins policy is further disabled, that performance degradation would "
    "increase to 47.5%.",
)
def _(cells: Cells) -> Effect:
    return ratio(cells, ACT, of={**FULL, "policy": "hermes_mean", REFINES: False}, over=FULL)


SIMILAR = (
    "We also notice that in each case, the performance of LLaMA-7B and LLaMA-13B are quite similar."
)
for _name, _says, _policy in (
    ("no refinement", "mean ACT without refinement, Llama-2-13b", "hermes_gittins"),
    ("neither", "mean ACT without refinement and Gittins, Llama-2-13b", "hermes_mean"),
):
    paper.claim(
        f"fig12.{_name.replace(' ', '-')}-13b",
        figure="fig12",
        where="bars of Fig. 12",
        paper=PARTS_BARS[_name][1],
        says=_says,
        quote=SIMILAR,
    )(
        partial(
            ratio,
            figure=ACT,
            of={**FULL, **LARGE, "policy": _policy, REFINES: False},
            over={**FULL, **LARGE},
        )
    )


@paper.claim(
    "fig12.oracle",
    figure="fig12",
    where="Fig. 12, section 5.3",
    paper=1.10,
    says="mean ACT over that of an oracle, at most",
    quote="the performance gap between Hermes and Hermes-Oracle is less than 10%",
)
def _(cells: Cells) -> Effect:
    return replace(ratio(cells, ACT, of=FULL, over=ORACLE), kind=EffectKind.AT_MOST)


# Figures 13 and 14: caches and prewarming.

CONTEXT_HITS = "improving the overall cache hit ratio by up to 1.11x (0.33x) compared to LRU (EPWQ)"
CONTEXT_ACT = "It reduces the average ACT by 18% (6%) compared to LRU (EPWQ)."
for (_base, (_system, _words)), _hits, _saved in zip(
    CACHES.items(), (2.11, 1.33), (0.18, 0.06), strict=True
):
    paper.claim(
        f"fig13.kv-hit-{_base}",
        figure="fig13",
        why="most contexts fit: *Figure 13*",
        scenarios=("hermes_contexts",),
        where="Fig. 13a, section 5.4",
        paper=(1.0, _hits),
        says=f"cache hits of contexts over {_words}, up to (8, 16, 32 GB)",
        group="cache hits of contexts, up to (over LRU / EPWQ)",
        quote=CONTEXT_HITS,
    )(partial(over_settings, figure=HITS, of=CACHED, over={"system": _system}, settings=[CAPACITY]))
    paper.claim(
        f"fig13.kv-act-{_base}",
        figure="fig13",
        why="most contexts fit: *Figure 13*",
        scenarios=("hermes_contexts",),
        where="section 5.4",
        paper=_saved,
        unit="%",
        says=f"mean ACT saved over {_words}, contexts",
        group="mean ACT saved with contexts (over LRU / EPWQ)",
        quote=CONTEXT_ACT,
    )(partial(reduction, figure=ACT, of=CACHED, over={"system": _system}, average_over=[CAPACITY]))


@paper.claim(
    "fig13.lora-hit-epwq",
    figure="fig13",
    why="by hits: *Figure 13*",
    scenarios=("hermes_adapters",),
    where="Fig. 13b, section 5.4",
    paper=1.211,
    says="cache hits of adapters over EPWQ",
    quote="Compared to the second best (EPWQ), Hermes can increase the cache hit ratio by 21.1%.",
)
def _(cells: Cells) -> Effect:
    return ratio(
        cells, HITS, of={"system": "caching_hermes_adapters"}, over={"system": "caching_epwq"}
    )


def is_traded(wait_s: float, longer_s: float, idle_s: float, less_s: float) -> bool:
    """Whether calls wait for shorter and backends are idle for longer with the smaller knob."""
    return wait_s < longer_s and idle_s > less_s


@paper.claim(
    "fig14.knob",
    figure="fig14",
    where="Fig. 14, section 5.4",
    printed="trade-off",
    says="a smaller K finishes faster and wastes more (0.1 against 0.9; containers, DNNs)",
    quote="a smaller K value can in general yield faster completion, yet at the cost of higher "
    "resource wastage",
)
def _(cells: Cells) -> Effect:
    ends = [(figure, {KNOB: knob}) for figure in (WAIT, IDLE) for knob in (0.1, 0.9)]
    return share_of_seeds(cells, is_traded, *ends, settings=["CG"])


# Figure 15: overhead.

TEN = {BUCKETS: 10}


@paper.claim(
    "fig15.policy-runtime",
    figure="fig15",
    where="Fig. 15a, section 5.5",
    paper=3.0,
    unit=" ms",
    says="milliseconds of a decision, 10 buckets, at most",
    quote="It shows that the scheduling overhead is indeed quite small in each case (less than 3 "
    "ms).",
)
def _(cells: Cells) -> Effect:
    return at_most(cells, policy_ms, TEN, settings=[WINDOW])


@paper.claim(
    "fig15.buckets",
    figure="fig15",
    where="Fig. 15b, section 5.5",
    printed="rises",
    says="milliseconds of a decision with the number of buckets",
    quote="using more buckets to describe the demand distribution almost linearly increases the "
    "policy runtime",
)
def _(cells: Cells) -> Effect:
    over = {**TEN, **THRICE}
    return trend(cells, policy_ms, of=THRICE, over=over, along=BUCKETS, rising=True)


@paper.claim(
    "fig15.no-gain",
    figure="fig15",
    where="Fig. 15b, section 5.5",
    paper=1.0,
    says="mean ACT with 100 buckets over that with 10",
    quote="but does not help improve the scheduling performance.",
)
def _(cells: Cells) -> Effect:
    return equal(cells, ACT, of={BUCKETS: 100, **THRICE}, over={**TEN, **THRICE})
