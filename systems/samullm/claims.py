"""What SamuLLM (Fang et al., arXiv 2503.16893, sections 1 to 5) claims, and how it is tested."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import eq, gt
from types import MappingProxyType
from typing import Any

import pandas as pd

from harness.claims import effects
from harness.claims.effects import ALL, Cells, Effect, EffectKind, Measure, joined, over_settings
from harness.claims.paper import ClaimFunction, FigureSpec, Judged, Paper
from systems.samullm import measures

OURS, MAX, MIN = {"system": "samullm"}, {"system": "max_heuristic"}, {"system": "min_heuristic"}
KNOWN, UNKNOWN = {"predictor": "oracle"}, {"predictor": "none"}
PREEMPTED, KEPT = {"preemption": True}, {"preemption": False}
SIZES = ("requests", "max_output_tokens")
LENGTHS = ("answers", "predictor")
CHAINS = ("documents", "evaluations", "max_output_tokens")
TOGETHER = {"only": "summary+ensemble"}
# The ensembling is the same beside any number of documents, and was run with one of them.
SEQUENTIAL = ({"only": "summary"}, {"only": "ensemble", "documents": 100})
EXAMPLE = {"documents": 300, "evaluations": 2, "max_output_tokens": 900}
LIMITS = ("max_output_tokens",)
APPLICATIONS = ("ensembling", "routing", "chain_summary", "mixed")
ESTIMATES = tuple(f"estimates_{name}" for name in APPLICATIONS)
PLANNERS = "needs the authors' planners on their 48 cores; ours is another program"


def _code(*scenarios: str) -> tuple[str, ...]:
    return tuple(f"{name} variant=code" for name in scenarios)


def _figure(name: str, shows: str, plot: str, *scenarios: str) -> FigureSpec:
    plot, code = f"plots.{plot}" if plot else "", _code(*scenarios)
    return FigureSpec(name=name, shows=shows, plot=plot, scenarios=scenarios, code=code)


def _headline(judged: Mapping[str, Judged]) -> str:
    found = {name: one.verdict for name, one in judged.items()}

    def span(name: str) -> str:
        low, high = found[name].span or (found[name].ours,) * 2
        return f"{low:.2f}-{high:.2f}x"

    against = {"ensembling": "fig7", "routing": "fig8", "chain summary": "fig11"}
    lost = [
        f"loses to Min-heuristic in {name} ({span(f'{figure}.vs-min')})"
        for name, figure in against.items()
        if found[f"{figure}.vs-min"].high < 1
    ]
    min_says = " and ".join(lost) or "is behind Min-heuristic in no application"
    return (
        "**SamuLLM is faster than giving every model all GPUs; whether it is faster than "
        "Min-heuristic depends on the application.** Ensembling takes Max-heuristic "
        f"{span('fig7.vs-max')} as long (paper: 1.1-2.4x), routing {span('fig8.vs-max')} "
        f"(1.4-1.8x), chain summary {span('fig11.vs-max')} (1.0-1.3x); SamuLLM {min_says}. Without "
        f"preemption SamuLLM takes {found['fig14.preemption'].ours:.2f}x and Min-heuristic "
        f"{found['fig14.preemption-min'].ours:.2f}x as long (paper: at most 1.2x and 1.4x), and "
        f"estimated inference times are off by {found['sec55.unknown-average'].ours:.0%} on "
        "average (25.6%)."
    )


paper = Paper(
    name="samullm",
    title="SamuLLM: placement of many models in stages",
    citation="Fang et al., arXiv 2503.16893",
    figures=(
        _figure("fig2", "output lengths by prompt", "samullm_insights:figure2"),
        FigureSpec(
            name="fig3",
            shows="running requests by iteration; seconds of one model on one GPU",
            scenarios=("sharegpt_vicuna",),
            code=_code("sharegpt_vicuna"),
            also=("running_requests",),
            plot="plots.samullm_insights:figure3",
            needs={"vllm": ("running_requests",)},
        ),
        _figure("fig4", "latency of iterations", "samullm_insights:figure4"),
        _figure("fig7", "LLM ensembling", "samullm_fig7:plot", "ensembling", "chatglm_scaling"),
        _figure("fig8", "running time of LLM routing", "samullm_bars:plot", "routing"),
        _figure("fig9", "schedules of LLM routing", "samullm_schedules:plot", "routing"),
        FigureSpec(
            name="fig10",
            shows="chunks of the documents",
            also=("chain_summary",),
            plot="plots.samullm_insights:figure10",
        ),
        _figure("fig11", "times of chain summary", "samullm_fig11:plot", "chain_summary"),
        _figure("fig12", "running time of mixed applications", "samullm_bars:plot", "mixed"),
        _figure("fig13", "schedules of a mixed application", "samullm_schedules:plot", "mixed"),
        _figure("fig14", "no preemption, and known lengths", "samullm_bars:plot", "ablation"),
        _figure("fig15", "schedules without preemption", "samullm_schedules:plot", "ablation"),
        FigureSpec(name="sec55", shows="errors of the planner's estimates", scenarios=ESTIMATES),
        _figure("sec1", "speedups over all applications", "", *APPLICATIONS),
    ),
    headline=_headline,
    chosen=(
        "An engine runs 512 requests at a time, as in the program; vLLM's default is 256.",
        "Each further replica starts 0.58 s after the one before, fitted to chatglm3-6b; none "
        "survives a change of plan.",
        "True output lengths have the distribution that the planner samples, No Robots.",
        "Figure 7 has 1,000, 5,000 and 10,000 requests, figure 12 100, 400 and 500 documents.",
        "Figure 11 has 300 documents, 4 evaluations and limit 900 where a panel does not vary "
        "them; its example has 300 documents and limit 900.",
        "Chunks of documents are lognormal with median 3 and sigma 1.35; templates have 200 "
        "tokens, evaluations the summaries' limit.",
        "Prompts and published answers of RouterBench have the printed range and mean.",
        "A summary reaches the evaluator at once; the program looks every 16 iterations.",
        "Max-heuristic has the ensembling first, as in figure 13. GPUs that load are not idle.",
        "Section 5.5's true latencies are drawn from the error of the cost profile.",
    ),
    program=(
        "In its 59 published runs of chain summary on 8 A100 (limit 900) SamuLLM is 0.98-1.28x "
        "as fast as Max-heuristic without planning and 0.98-1.15x with it, by setting; its "
        "estimates are off by 26% on average and 62% at most. Min-heuristic, the version without "
        "preemption and the mixed application are not public."
    ),
    variations={
        "policy.rule.max_num_seqs=256": "256 requests at a time",
        "system.placement.needed_only=true": "padding and recomputation not counted as work",
        "system.placement.keep_replicas=true": "replicas survive a change of plan",
        "system.placement.every_expert=false": "only the experts that a token meets counted",
        "hardware.replica_start_s=1.7": "1.7 s per further replica",
        "workload.output_scale=0.7": "answers 0.7x as long as planned",
        "workload.output_scale=1.3": "answers 1.3x as long as planned",
        "workload.answer_tokens.sigma=0.5": "answer lengths spread less (sigma 0.5)",
        "workload.answer_tokens.sigma=1.5": "answer lengths spread more (sigma 1.5)",
        "workload.evaluation_max_output_tokens=256": "evaluations limited to 256 tokens",
        "workload.max_output_tokens=512": "answers limited to 512 tokens",
        "workload.max_output_tokens=1024": "answers limited to 1,024 tokens",
    },
)


def _at(figure: str, where: str, *scenarios: str) -> dict[str, Any]:
    runs = {"scenarios": scenarios, "code": _code(*scenarios)} if scenarios else {}
    return {"figure": figure, "where": where, **runs}


FIG2, FIG3 = _at("fig2", "Fig. 2, section 2"), _at("fig3", "Fig. 3, section 2")
FIG7 = _at("fig7", "Fig. 7, section 5.1", "ensembling")
CHATGLM = _at("fig7", "sections 1 and 5.1", "chatglm_scaling")
FIG8, FIG9 = _at("fig8", "Fig. 8, section 5.2"), _at("fig9", "Fig. 9, section 5.2")
FIG11, FIG12 = _at("fig11", "Fig. 11, section 5.3"), _at("fig12", "Fig. 12, section 5.4")
FIG14, FIG15 = _at("fig14", "Fig. 14, section 5.5"), _at("fig15", "Fig. 15, section 5.5")


def _claim(id: str, effect: ClaimFunction, **facts: Any) -> None:
    paper.claim(id, **facts)(effect)


def _fact(
    id: str,
    fact: Callable[..., bool],
    *figures_of: tuple[Measure, Mapping[str, Any]],
    settings: Sequence[str] = (),
    **facts: Any,
) -> None:
    """A claim that `fact` holds of these figures, seed by seed."""

    def effect(cells: Cells) -> Effect:
        return effects.share_of_seeds(cells, fact, *figures_of, settings=settings)

    paper.claim(id, **facts)(effect)


def _faster(
    cells: Cells,
    over: Mapping[str, Any],
    settings: Sequence[str],
    at: Mapping[str, Any] = MappingProxyType({}),
    figure: Measure = "end_to_end_s",
) -> Effect:
    """Times of a heuristic over SamuLLM's at every setting."""
    return over_settings(cells, figure, of={**over, **at}, over={**OURS, **at}, settings=settings)


_same = partial(effects.equal, figure="inference_s")


def _ratio(
    figure: Measure, of: Mapping[str, Any], over: Mapping[str, Any], at: Mapping[str, Any]
) -> ClaimFunction:
    return partial(effects.ratio, figure=figure, of={**of, **at}, over={**over, **at})


# Section 2


for part in ("length", "category"):
    paper.untested(
        f"fig2.{part}",
        **FIG2,
        because="needs data",
        group="output lengths are distributed alike whatever the prompt's",
        says=part,
        printed="similar",
        quote="the eCDFs are similar regardless of the request length or [...] content category",
        note="vicuna's answers to No Robots are published only all together",
    )

_claim(
    "fig3.running-time",
    partial(effects.absolute, figure=measures.computing_s, at={"system": "fixed"}),
    **FIG3,
    says="vicuna-13b answers 1,000 ShareGPT requests on one GPU",
    paper=92.0,
    unit=" s",
    quote="98 seconds, while the real running time we measured is 92 seconds",
    note="without loading; answer lengths from No Robots, as the paper samples them",
)
_claim(
    "fig3.estimate",
    partial(effects.at_most, figure=measures.computing_error, at=OURS),
    **FIG3,
    says="error of the estimate for one model on one GPU, at most",
    paper=0.065,
    unit="%",
    quote="98 seconds, while the real [...] is 92 seconds, with an error ratio of 6.5%",
    note="true latencies drawn from the error of the cost profile",
)


def _lines(_: Cells) -> Effect:
    """Which lines through measured latencies are as near to them as the cost model's error."""
    rows = measures.derived_table("linear_latency.json")["rows"]
    residuals = pd.Series([row["residual"] for row in rows])
    return Effect(EffectKind.FACT, (residuals <= 0.065).to_frame(ALL))


_claim(
    "fig4.linear-latency",
    _lines,
    figure="fig4",
    where="Fig. 4, section 2",
    says="latencies of iterations lie on lines, within 6.5%",
    printed="lines",
    quote="The per-iteration inference latency can be estimated using a set of linear functions",
    note="the authors' own measurements; counted are lines instead of seeds",
)


# Sections 1 and 5.1: LLM ensembling


def _all_applications(cells: Cells) -> Effect:
    settings = (SIZES, LENGTHS, CHAINS, ("documents",))
    at = [{"scenario": name, **(TOGETHER if name == "mixed" else {})} for name in APPLICATIONS]
    parts = [*zip(settings, at, strict=True)]
    return joined(*(_faster(cells, over, by, it) for by, it in parts for over in (MAX, MIN)))


_claim(
    "sec1.speedup",
    _all_applications,
    figure="sec1",
    where="section 1",
    says="faster than both heuristics, over all applications",
    paper=(1.0, 2.4),
    quote="we can achieve 1.0-2.4x end-to-end speedup [...] compared to the competitors",
)

for count, inference, whole in ((1000, 2.3, 1.5), (10_000, 6.6, 5.3)):
    paper.untested(
        f"sec51.chatglm-scaling-{count}",
        **CHATGLM,
        because="fed in",
        group="chatglm3-6b, 8 GPUs over 1, with loading",
        says=f"{count:,} requests",
        paper=whole,
        quote="8x more GPUs only make the throughput 1.5x higher; [...] 5.3x throughput",
        note="the seconds that a further replica needs to start are fitted to it",
    )
    _claim(
        f"sec51.chatglm-inference-{count}",
        _ratio(measures.computing_s, {"gpu_count": 1}, {"gpu_count": 8}, {"requests": count}),
        **CHATGLM,
        group="chatglm3-6b, 8 GPUs over 1, without loading",
        says=f"{count:,} requests",
        paper=inference,
        quote="8x GPUs leads to 2.3x throughput for 1000 requests while 6.6x [...] for 10000",
    )

paper.untested(
    "sec51.model-load",
    **FIG7,
    because="fed in",
    says="loading one of the nine models",
    paper=(11.0, 47.0),
    unit=" s",
    quote="the model loading time [...], which ranges from 11s to 47s",
    note="the authors' measured loading times are the simulator's",
)

for at, settings, application, of_max, of_min, better in (
    (FIG7, SIZES, "ensembling", (1.1, 2.4), (1.0, 1.6), "is 1.1-2.4x, 1.0-1.6x better"),
    (FIG8, LENGTHS, "routing", (1.4, 1.8), (1.0, 1.1), "achieves 1.4-1.8x and 1.0-1.1x speedup"),
    (FIG11, CHAINS, "chain summary", (1.0, 1.3), (1.0, 1.4), "is 1.0-1.3x and 1.0-1.4x better"),
):
    for name, system, span in (("Max", MAX, of_max), ("Min", MIN, of_min)):
        _claim(
            f"{at['figure']}.vs-{name.lower()}",
            partial(_faster, over=system, settings=settings),
            **at,
            group=f"{application}: end-to-end speedup",
            says=f"over {name}-heuristic",
            paper=span,
            quote=f"in terms of the end-to-end running time, our method {better} [...] "
            "Max-heuristic and Min-heuristic, respectively",
        )

FALLING: dict[str, Any] = {"along": "requests", "rising": False, "average_over": LIMITS}
for name, system in (("Max", MAX), ("Min", MIN)):
    _claim(
        f"fig7.trend-{name.lower()}",
        partial(effects.trend, figure="end_to_end_s", of=system, over=OURS, **FALLING),
        **FIG7,
        group="ensembling: the advantage falls from 1,000 to 10,000 requests",
        says=f"over {name}-heuristic",
        printed="falls",
        quote="As the number of requests increases, the advantage [...] becomes smaller",
    )

_claim(
    "fig7.inference-best",
    _ratio("inference_s", MAX, OURS, {"requests": 1000, "max_output_tokens": 256}),
    **FIG7,
    says="largest speedup without planning: 1,000 requests, limit 256, over Max-heuristic",
    paper=2.5,
    quote="we are at most 2.5x better than the competitors (when [...] 1000 and [...] 256)",
)

for figure, section, says, seconds, quote in (
    ("fig7", "5.1", "ensembling", 69.0, "The extra time of our method is 22 - 69s"),
    ("fig8", "5.2", "routing", 15.0, "The maximum extra time of all methods is 15s"),
    ("fig11", "5.3", "chain summary", 27.8, "No method's extra time exceeds 27.8s"),
    ("fig12", "5.4", "mixed", 68.0, "The maximum extra time of Ours [is] 68s"),
):
    paper.untested(
        f"{figure}.search-time",
        **_at(figure, f"section {section}"),
        because="needs hardware",
        group="planning takes at most",
        says=says,
        paper=seconds,
        unit=" s",
        quote=quote,
        note=PLANNERS,
    )
paper.untested(
    "fig7.search-time-alike",
    **FIG7,
    because="needs hardware",
    says="planning takes the three methods alike",
    printed="close",
    quote="The extra time of all the 3 methods is close to each other",
    note=PLANNERS,
)


# Section 5.2: LLM routing


paper.untested(
    "tab1.routing-mix",
    **_at("fig8", "Table 1"),
    because="fed in",
    says="requests of each of the five models",
    printed="408-2,657",
    quote="The number of requests for each LLM is shown in Table 1",
    note="the workload asks each model so many requests",
)

_fact(
    "fig9.more-gpus",
    gt,
    (measures.model_1_gpu_s, {**MAX, **KNOWN}),
    (measures.model_1_gpu_s, {**OURS, **KNOWN}),
    **FIG9,
    says="model 1 takes more GPU seconds under Max-heuristic than under SamuLLM",
    printed="more",
    quote="by comparing model 1 [...] we find that 4x GPUs do not lead to 4x throughput",
    note="which is model 1 is not stated; here the first of table 1, Llama-2-70b",
)
_fact(
    "fig9.plan-changes",
    gt,
    (measures.plan_changes, {**MIN, **KNOWN}),
    (measures.plan_changes, {**OURS, **KNOWN}),
    **FIG9,
    says="Min-heuristic loads models again more often than SamuLLM",
    printed="more often",
    quote="by comparing model 3 [...] unnecessary execution plan changes waste running time",
)


# Section 5.3: chain summary


paper.untested(
    "fig10.document-lengths",
    **_at("fig10", "Fig. 10"),
    because="fed in",
    says="median and largest number of chunks of 100 documents",
    printed="3 and 60",
    quote="one extremely long document with 60 chunks, while the median length is 3 chunks",
    note="the workload draws its documents from these figures",
)

IDLE_QUOTE = (
    "Max-heuristic causes 0.9-1.6x (1.2x on average) and Min-heuristic causes 1.1-1.9x (1.5x) more "
    "GPU idle time than Ours"
)

for name, system, span, average in (("Max", MAX, (0.9, 1.6), 1.2), ("Min", MIN, (1.1, 1.9), 1.5)):
    _claim(
        f"fig11.idle-{name.lower()}",
        partial(_faster, over=system, settings=CHAINS, figure="gpu_idle_s"),
        **FIG11,
        group="chain summary: idle GPU time over SamuLLM's, by setting",
        says=f"{name}-heuristic",
        paper=span,
        quote=IDLE_QUOTE,
    )
    _claim(
        f"fig11.idle-{name.lower()}-average",
        partial(effects.ratio, figure="gpu_idle_s", of=system, over=OURS, average_over=CHAINS),
        **FIG11,
        group="chain summary: idle GPU time over SamuLLM's, on average",
        says=f"{name}-heuristic",
        paper=average,
        quote=IDLE_QUOTE,
    )

FIG11B = _at("fig11", "Fig. 11b, section 5.3") | {
    "quote": "the summarization and the evaluation process in Max-heuristic take 1324s and 153s, "
    "respectively, each using 8 GPUs; while summarization in Ours takes 1479s using 6 GPUs, and "
    "evaluation is done in parallel with summarization using 2 GPUs, with only an extra of 21s "
    "spent after summarization finishes [...] hence the total running time of the two methods is "
    "close. Min-heuristic [...] summarization takes 1648s, due to only 4 GPUs",
}

for name, system, says, gpus, measure in (
    ("max", MAX, "summarise under Max-heuristic", 8, measures.summarising_gpus),
    ("ours", OURS, "summarise under SamuLLM", 6, measures.summarising_gpus),
    ("beside", OURS, "evaluate beside them under SamuLLM", 2, measures.evaluator_gpus_beside),
    ("min", MIN, "summarise under Min-heuristic", 4, measures.summarising_gpus),
):
    _fact(
        f"fig11.example-gpus-{name}",
        partial(eq, gpus),
        (measure, {**system, **EXAMPLE}),
        **FIG11B,
        group="chain summary, 2 evaluations: GPUs that",
        says=says,
        printed=f"{gpus} GPUs",
    )

for name, of, over, says, longer in (
    ("max", OURS, MAX, "SamuLLM over Max-heuristic", 1.12),
    ("min", MIN, OURS, "Min-heuristic over SamuLLM", 1.11),
):
    _claim(
        f"fig11.example-summaries-{name}",
        _ratio(measures.summarising_s, of, over, EXAMPLE),
        **FIG11B,
        group="chain summary, 2 evaluations: seconds of summarising",
        says=says,
        paper=longer,
    )
_claim(
    "fig11.example-total",
    partial(_same, of={**MAX, **EXAMPLE}, over={**OURS, **EXAMPLE}),
    **FIG11B,
    says="chain summary, 2 evaluations: Max-heuristic takes as long as SamuLLM",
    paper=1.0,
    printed="close",
)
_claim(
    "fig11.example-extra",
    partial(effects.at_most, figure=measures.after_summaries_s, at={**OURS, **EXAMPLE}),
    **FIG11B,
    says="chain summary, 2 evaluations: from last summary to end, at most",
    paper=21.0,
    unit=" s",
    note="fewer are no fault; theirs is one sample of documents",
)


# Section 5.4: mixed application


def _one_by_one(cells: Cells, at: Mapping[str, Any], figure: Measure, kind: EffectKind) -> Effect:
    """Seconds of both applications one after the other over those of both as a whole."""
    apart, whole = [{**at, **part} for part in SEQUENTIAL], {**at, **TOGETHER}
    found = over_settings(cells, figure, of=apart, over=whole, settings=["documents"])
    return Effect(kind, found.samples)


APART = "one application after the other, over both as a whole"

_claim(
    "fig12.vs-heuristics",
    lambda cells: joined(*(_faster(cells, it, ["documents"], TOGETHER) for it in (MAX, MIN))),
    **FIG12,
    says="chain summary with ensembling: faster than both heuristics",
    paper=(1.2, 1.4),
    quote="in terms of the end-to-end running time, Ours is 1.2-1.4x better than the competitors",
)
_claim(
    "fig12.together",
    partial(_one_by_one, at=OURS, figure="end_to_end_s", kind=EffectKind.RANGE),
    **FIG12,
    group=APART,
    says="SamuLLM",
    paper=(1.0, 1.2),
    quote="to run the two applications sequentially costs 1.0-1.2x longer end-to-end running time",
)
_claim(
    "fig12.together-max",
    partial(_one_by_one, at=MAX, figure="end_to_end_s", kind=EffectKind.EQUAL),
    **FIG12,
    group=APART,
    says="Max-heuristic",
    paper=1.0,
    quote="sequentially running [...] or [...] as a whole makes no difference for Max-heuristic",
)
_claim(
    "fig12.together-min-inference",
    partial(_one_by_one, at=MIN, figure="inference_s", kind=EffectKind.RANGE),
    **FIG12,
    group=APART,
    says="Min-heuristic, without planning",
    paper=(1.0, 1.2),
    quote="in terms of the inference time, sequential scheduling is 1.0-1.2x slower",
)
_fact(
    "fig12.together-min-100",
    lambda whole, summary, ensemble: summary + ensemble > whole,
    *(("end_to_end_s", {**MIN, "documents": 100, **part}) for part in (TOGETHER, *SEQUENTIAL)),
    **FIG12,
    says="Min-heuristic, 100 documents: both as a whole are faster",
    printed="faster",
    quote="For Min-heuristic, only when [...] (100, 5000) [...] as a whole brings benefit",
)
paper.untested(
    "fig12.together-min",
    **FIG12,
    because="needs hardware",
    group=APART,
    says="Min-heuristic, beyond 100 documents",
    paper=(0.9, 1.0),
    quote="sequential scheduling is 0.9-1.0x faster [...] because of the increased extra time",
    note="its planning takes up to 205 s on their machine, a few seconds here",
)

FIG13 = _at("fig13", "Fig. 13, section 5.4") | {
    "quote": "in about the first 750s of each scheduling plan, all the models in the LLM "
    "ensembling (model 202-210) finish, but Ours additionally completes more workloads of the "
    "chain summary (model 201, 211) than the other two methods",
}
AT_400 = {**TOGETHER, "documents": 400}

for says, system in (("Max-heuristic", MAX), ("Min-heuristic", MIN), ("SamuLLM", OURS)):
    name = "ours" if system is OURS else says.lower()[:3]
    _fact(
        f"fig13.ensembling-done-{name}",
        bool,
        (measures.ensembling_is_done, {**system, **AT_400}),
        **FIG13,
        group="the ensembling is done by 750 s under",
        says=says,
        printed="done",
    )
    if system is not OURS:
        _fact(
            f"fig13.more-done-{name}",
            gt,
            (measures.summarised_share, {**OURS, **AT_400}),
            (measures.summarised_share, {**system, **AT_400}),
            **FIG13,
            group="by 750 s SamuLLM has done more of the chain summary than",
            says=says,
            printed="more",
        )


# Section 5.5: ablation


def _ablated(
    at: Sequence[Mapping[str, Any]], of: Mapping[str, Any], over: Mapping[str, Any]
) -> ClaimFunction:
    """End-to-end times of one version of these systems over another, at both limits."""
    sides = [({**it, **of}, {**it, **over}) for it in at]
    time = partial(over_settings, figure="end_to_end_s", settings=LIMITS)
    return lambda cells: joined(*(time(cells, of=one, over=other) for one, other in sides))


for name, says, system, span in (
    ("preemption", "SamuLLM", OURS, (1.0, 1.2)),
    ("preemption-min", "Min-heuristic", MIN, (1.3, 1.4)),
):
    _claim(
        f"fig14.{name}",
        _ablated([{**system, **UNKNOWN}], KEPT, PREEMPTED),
        **FIG14,
        group="end-to-end time without preemption over that with it",
        says=says,
        paper=span,
        quote="allowing preemption can bring 1.0-1.2x and 1.3-1.4x speedups in the test cases",
    )
_claim(
    "fig14.known-lengths",
    _ablated([{**OURS, **PREEMPTED}, {**MIN, **PREEMPTED}], KNOWN, UNKNOWN),
    **FIG14,
    says="end-to-end time with known output lengths over that with unknown",
    paper=(0.9, 1.0),
    quote="the output-length-known versions are 0.9-1.0x better than the [...] unknown version",
    note="read as 0.9 to 1.0 of the time, of SamuLLM and Min-heuristic",
)
_claim(
    "fig14.known-lengths-max",
    partial(_same, of={**MAX, **KNOWN}, over={**MAX, **UNKNOWN}, settings=LIMITS),
    **FIG14,
    says="Max-heuristic's schedule is the same with known lengths",
    paper=1.0,
    printed="the same",
    quote="its output-length-known version finds the same scheduling solutions",
    note="compared are inference times",
)
_fact(
    "fig15.six-gpus",
    lambda gpus: 5 <= gpus <= 7,
    (measures.summariser_gpus_kept, {**OURS, **KEPT, **UNKNOWN, "max_output_tokens": 256}),
    **FIG15,
    says="SamuLLM without preemption: the summary model keeps 6 GPUs throughout",
    printed="6 GPUs",
    quote="assigned 6 GPUs. Without preemption, [...] it continues occupying them",
    note="limit 256; 5 and 7 GPUs count, since theirs is one schedule",
)
for name, says, fact, measure in (
    ("one-gpu", "has 1 GPU at its end", partial(eq, 1), measures.summariser_gpus_at_end),
    ("first", "starts in the first stage", partial(eq, 0), measures.summariser_loads_after_s),
):
    _fact(
        f"fig15.min-{name}",
        fact,
        (measure, {**MIN, **KEPT, **UNKNOWN}),
        settings=LIMITS,
        **FIG15,
        group="Min-heuristic without preemption: the summary model",
        says=says,
        printed="yes",
        quote="Without preemption, in both test cases, model 211 is started in the first execution "
        "stage and occupies only 1 GPU throughout its lifecycle",
    )


def _errors_unknown(cells: Cells) -> Effect:
    """Errors of estimated inference times without knowledge of lengths, in all applications."""
    settings = (SIZES, (), ("documents",), ("documents", "max_output_tokens"))
    at = [{"scenario": name, **(UNKNOWN if "mixed" in name else {})} for name in ESTIMATES]
    error = partial(effects.at_most, figure="planned_error")
    parts = zip(at, settings, strict=True)
    return joined(*(error(cells, at=it, settings=by) for it, by in parts))


def _errors_known(cells: Cells) -> Effect:
    return effects.at_most(cells, "planned_error", {**KNOWN, "documents": 500}, settings=LIMITS)


def _average(errors: ClaimFunction) -> ClaimFunction:
    """The mean over settings, judged as the settings were."""

    def effect(cells: Cells) -> Effect:
        found = errors(cells)
        return Effect(found.kind, found.samples.mean(axis=1).to_frame(ALL))

    return effect


for name, says, errors, scenarios, largest, average, quote in (
    (
        *("unknown", "unknown lengths, all applications", _errors_unknown, ESTIMATES, 0.387, 0.256),
        "without prior knowledge [...] ranges from 6.5%-38.7%, with an average of 25.6%",
    ),
    (
        *("known", "known lengths, mixed application", _errors_known, ESTIMATES[-1:], 0.205, 0.17),
        "With the output lengths known, [...] between 9.2%-20.5%, with an average of 17.0%",
    ),
):
    for which, effect, bound in (
        ("largest", errors, largest),
        ("average", _average(errors), average),
    ):
        _claim(
            f"sec55.{name}-{which}",
            effect,
            **_at("sec55", "section 5.5"),
            scenarios=scenarios,
            group=f"{which} error of the estimated inference time, at most",
            says=says,
            paper=bound,
            unit="%",
            quote=quote,
            note="true latencies drawn from the error of the cost profile",
        )
