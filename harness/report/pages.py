"""The generated parts of README.md and of the pages below results/pages.

A part NAME stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`, and is the template
NAME.md.j2 with the frames of the function NAME; the text around it is written by hand.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from harness.claims.paper import REFERENCE, Claim, Paper, load_paper
from harness.claims.texts import NONE, number, printed
from harness.conditions.outcomes import Outcome
from harness.conditions.space import Space, read_spaces
from harness.conditions.texts import name_of
from harness.config.paths import PROFILES, ROOT
from harness.costs.engine_kinds import ENGINES, engine_kind
from harness.costs.gpu_facts import gpu_facts
from harness.costs.kernels import read_table, table_path, tables
from harness.costs.profiles import holds_profiles, read_profiles
from harness.costs.roofline import read_calibration
from harness.report.agreement import AgreementWord, bias_text, counts_text, pooled_bias, word_for
from harness.report.real_texts import order_text, same_batches_text, savings_texts
from harness.report.render import Frames, counted, render

MARK = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
WHERE = "where-"
"""How the part of a paper begins that says where its claims come out."""
PEER = "peer_dynamo_w1_requests_per_s"
"""Figure of `make bench`: requests that a peer simulates a second, on the same load."""
BASES = (
    "measured profile, row held out",
    "roofline, its authors left out",
    "simulated, profile fitted elsewhere",
    "its authors' own planner",
)
"""What a reader needs first; results/fidelity/summary.json has every line."""
FIGURES = {
    "makespan_s": "makespan",
    "jct_s_mean": "mean JCT",
    "jct_s_p99": "P99 JCT",
    "ttft_s_mean": "mean TTFT",
    "tpot_s_mean": "mean TPOT",
}
"""Of runs on real vLLM."""
MARKS = {
    AgreementWord.AGREES: "",
    AgreementWord.DIFFERS: " **differs**",
    AgreementWord.INCONCLUSIVE: " ?",
}


def rewritten(text: str, root: Path) -> str:
    """`text` with every generated part as it should be. ValueError for a part without its end."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- generated: {name} -->\n{part_of(name, root)}\n<!-- end: {name} -->"

    for start in re.findall(r"<!-- generated: .* -->", MARK.sub("", text)):
        raise ValueError(f"{start} has no {start.replace('generated', 'end')}")
    return MARK.sub(part, text)


def part_of(name: str, root: Path) -> str:
    """One part. ValueError for a name that no part has."""
    if name.startswith(WHERE):
        return render("where.md.j2", maps=maps_of(name.removeprefix(WHERE), root / "results"))
    if name not in PARTS:
        raise ValueError(f"there is no generated part {name}; there are {', '.join(PARTS)}")
    return render(f"{name}.md.j2", **PARTS[name](root / "results"))


def every_page(root: Path) -> list[Path]:
    """What may have generated parts."""
    return [root / "README.md", *sorted((root / "results" / "pages").glob("*.md"))]


def write_pages() -> None:
    """Rewrite the generated parts."""
    for page in every_page(ROOT):
        page.write_text(rewritten(page.read_text(encoding="utf-8"), ROOT), encoding="utf-8")


def read_json(path: Path) -> Any:
    """Content of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def holds(results: Path) -> Frames:
    """Every paper with verdicts: its headline, its maps, and the verdicts at the reference."""
    papers = []
    for path in sorted((results / "claims").glob("*.csv")):
        rows = pd.read_csv(path)
        counts = counted(rows["verdict"][rows["setting"] == REFERENCE])
        said, _ = headline(results / "pages" / f"{path.stem}.md")
        maps = maps_of(path.stem, results)
        papers.append({"name": path.stem, "headline": said, "counts": counts, "maps": maps})
    league = results / "league" / "answers.json"
    return {"papers": papers, "league": read_json(league) if league.is_file() else {}}


def headline(page: Path) -> tuple[str, str]:
    """Of a paper's page: the first paragraph of its headline, and counts with what they rest on."""
    lines = page.read_text(encoding="utf-8").splitlines()
    said = [line[1:].strip() for line in lines if line.startswith(">")]
    return " ".join(said[: said.index("")]), said[-1]


def costs(_: Path) -> Frames:
    """Every folder of measured profiles, and how far a roofline is off on what it had not seen."""
    folders = [*filter(holds_profiles, sorted(PROFILES.iterdir()))]
    profiles = [(folder, one) for folder in folders for one in read_profiles(folder).values()]
    errors = pd.DataFrame([{"folder": folder, **one.error} for folder, one in profiles])
    known = errors.dropna(subset=["decode_median"]).groupby("folder")
    worst = {it: (f"{it}_median", "max") for it in ("decode", "prefill")}
    measured = known.agg(**worst).join(known.size().rename("pairs"))
    rooflines = pd.DataFrame([read_calibration(folder).error for folder in measured.index])
    received = [(folder.name, one) for folder, one in profiles if one.received_s.first_s]
    return {"measured": measured, "rooflines": rooflines, "received": received}


def engines(_: Path) -> Frames:
    """Every term of every kind of engine, and the GPUs with tables of kernels."""
    paths = {gpu: table_path(gpu_facts(gpu)) for gpu in tables()}
    return {
        "kinds": [engine_kind(path.stem) for path in sorted(ENGINES.glob("*.json"))],
        "gpus": [
            {"gpu": gpu, "bytes": path.stat().st_size, "source": read_table(path).source}
            for gpu, path in paths.items()
            if path is not None
        ],
    }


def served(results: Path) -> Frames:
    """Errors beside measured servers of today, and how many rows were left out why."""
    lines = pd.read_csv(results / "fidelity" / "served.csv", dtype={"value": str})
    lines["value"] = lines["value"].fillna("")
    is_out = lines["group"] == "left out"
    return {"lines": lines[~is_out], "left_out": lines[is_out]}


def verify(results: Path) -> Frames:
    """Per queue: how far the simulator is from the closed form."""
    lines = pd.DataFrame(read_json(results / "verify" / "summary.json")["lines"])
    lines["off"] = lines["difference"].abs()
    most = {"lines": ("off", "size"), "off": ("off", "max"), "bound": ("bound", "max")}
    queues = lines.groupby("queue", sort=False, as_index=False)
    return {"queues": queues.agg(**most, kept=("holds", "all"))}


def bench(results: Path) -> Frames:
    """Every figure of the last benchmark, with its machine; of a policy its ratio over the peer."""
    figures = read_json(results / "bench" / "summary.json")
    machine = figures.pop("machine")
    return {"figures": figures, "machine": machine, "ratios": policies_over_peer(figures)}


def policies_over_peer(figures: Mapping[str, float]) -> dict[str, float]:
    """By figure, requests per second of each policy on W1 over the peer's."""
    return matched_over_peer(figures, "(w1_.*_requests_per_s)")


def matched_over_peer(figures: Mapping[str, float], pattern: str) -> dict[str, float]:
    """Figures whose name matches, over the peer's; nothing where there is none of the peer."""
    peer, found = figures.get(PEER), ((re.fullmatch(pattern, it), it) for it in figures)
    return {match[1]: figures[name] / peer for match, name in found if match and peer}


def conditions(results: Path) -> Frames:
    """Of every paper whose claims have maps: its title, a row and a picture for each claim."""
    papers = []
    for path in sorted((results / "conditions").glob("*.json")):
        paper, maps = load_paper(path.stem), read_json(path)
        spaces = read_spaces(path.stem)
        rows = [
            _condition_row(paper.claims[name], one, spaces[one["space"]])
            for name, one in maps.items()
        ]
        pictures = {
            f"{path.stem}/{name.replace('.', '-')}": paper.claims[name].words for name in maps
        }
        real = sorted((results / "conditions" / path.stem).glob("*.measured.json"))
        measured = [_boundary(paper, read_json(it)) for it in real]
        parts = {"rows": pd.DataFrame(rows), "pictures": pictures, "measured": measured}
        papers.append({"title": paper.title, **parts})
    return {"papers": papers}


def _boundary(paper: Paper, found: Frames) -> Frames:
    """What comes out of a claim on both sides of a limit, on a real engine and simulated."""
    claim, space = paper.claims[found["claim"]], read_spaces(paper.name)[found["space"]]
    along = name_of(found["along"], space)
    rows = [
        {
            along: f"{one['at']:g}",
            "by its map": "inside" if one["inside"] else "outside",
            **{name: _came_out(one, name, claim.unit) for name in ("simulated", "measured")},
            "as the map says": "yes" if one["as told"] else "no",
        }
        for one in found["rows"]
    ]
    others = ", ".join(f"{name_of(name, space)} {it:g}" for name, it in found["setting"].items())
    seeds = f"{found['seeds']} seeds"
    if space.most_seeds > found["seeds"]:
        seeds += f", {space.most_seeds} where these leave open what comes out"
    shown = {"says": claim.words, "sides": pd.DataFrame(rows), "others": others, "seeds": seeds}
    return found | shown


def _came_out(row: Mapping[str, Any], engine: str, unit: str) -> str:
    value, low, high = (number(row[f"{engine} {it}"], unit) for it in ("value", "low", "high"))
    return f"{row[f'{engine} outcome']}: {value}{unit} [{low}, {high}]"


def maps_of(paper: str, results: Path) -> list[Frames]:
    """Of each claim of a paper that has a map: what is claimed, and what its map says."""
    path = results / "conditions" / f"{paper}.json"
    if not path.is_file():
        return []
    claims = load_paper(paper).claims
    found = []
    for name, one in read_json(path).items():
        tried = sum(one["counts"].values()) - one["counts"]["impossible"]
        share = one["counts"]["comes out"] / tried
        shown = {"says": claims[name].words, "tried": tried, "share": share}
        found.append({**one, **shown, "is_outside": _is_outside(one)})
    return found


def _is_outside(one: Mapping[str, Any]) -> bool:
    """Whether a claim comes out at the paper's own point, which lies outside its map's limits."""
    if one["at_start"]["outcome"] != Outcome.COMES_OUT or not one["simple"]:
        return False
    own = one["points"][len(one["points"]) // 2]
    boxes = [each["box"]["limits"] for each in one["boxes"]]
    return all(any(_is_beyond(own[it], *ends) for it, ends in box.items()) for box in boxes)


def _is_beyond(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)


def plans(results: Path) -> Frames:
    """The published plans, by name."""
    found = {}
    for path in sorted((results / "plans").glob("*/plan.json")):
        content = read_json(path)
        frames = {title: pd.DataFrame(rows) for title, rows in content["curves"].items()}
        found[path.parent.name] = content | {
            "best": pd.DataFrame(content["best"]),
            "curves": frames,
        }
    return {"plans": found}


def observed(results: Path) -> Frames:
    """Logs of servers that factors were fitted to, by name."""
    found = {}
    for path in sorted((results / "plans").glob("*/observed.json")):
        content = read_json(path)
        found[path.parent.name] = content | {"errors": pd.DataFrame(content["errors"])}
    return {"observed": found}


def winners(results: Path) -> Frames:
    """Which of the league's strongest policies wins in how many settings, and in which."""
    found: Frames = read_json(results / "league" / "winners.json")
    return found


def checks(results: Path) -> Frames:
    """What came out of two public statements on the league's loads."""
    found: Frames = read_json(results / "league" / "checks.json")
    return found


def _condition_row(claim: Claim, one: Mapping[str, Any], space: Space) -> dict[str, str]:
    start, tried = one["at_start"], sum(one["counts"].values())
    share = "" if start["share"] is None else f", {start['share']:.2f} of the claimed effect"
    own = one["points"][len(one["points"]) // 2]
    far = [
        f"{name_of(it.name, space)} is beyond the range tried, {it.low:g} to {it.high:g}"
        for it in space.dimensions
        if _is_beyond(own[it.name], it.low, it.high)
    ]
    at = ", ".join([one["from"], *far])
    return {
        "claim": f"{claim.words} (`{claim.id}`)",
        "printed": printed(claim.paper, claim.printed, claim.unit).short,
        "at the paper's own point": f"{start['outcome']}{share}: {at}",
        "settings": ", ".join(f"{n} {word}" for word, n in one["counts"].items() if n),
        "share that comes out": f"{one['counts']['comes out'] / tried:.0%}",
        "where": " ".join(filter(None, (one["condition"], one["state"], one["reversed"]))),
        "nearest change": one["change"],
        "decided by": ", ".join(name_of(it, space) for it in [*one["influence"]][:3]),
    }


def fidelity(results: Path) -> Frames:
    """Per source, GPU and phase: rows, and the median and worst of the lines' median errors."""
    lines = pd.DataFrame(read_json(results / "fidelity" / "summary.json")["lines"])
    kept = lines[lines["basis"].isin(BASES)].dropna(subset=["median_error"])
    groups = kept.groupby(["basis", "source", "gpu", "what"], as_index=False)
    errors = {"median": ("median_error", "median"), "worst": ("median_error", "max")}
    counts = {"lines": ("rows", "size"), "rows": ("rows", "sum")}
    return {"lines": groups.agg(**counts, **errors, p95=("p95_error", "median"))}


def fidelity_runs(results: Path) -> Frames:
    """Whole runs on real engines by scenario and system, the simulator's error, and batches."""
    return {"runs": [*map(measured_run, sorted((results / "fidelity_runs").glob("*.json")))]}


def measured_run(path: Path) -> Frames:
    """A stored comparison of measured and simulated runs, with sentences on what it says."""
    content: Frames = read_json(path)
    saved = savings_texts(content.get("savings", ()))
    said = [*saved, *map(order_text, content.get("order", ()))]
    batches = content.get("batches", ())
    same = [row["system"] for row in batches if row["exact"] and row["equal"] == row["seeds"]]
    each = [row for row in batches if row["system"] not in same or len(same) < 2]
    told = [f"{', '.join(same)}: the same batches and answer lengths in all seeds"] * (
        len(same) > 1
    )
    told += map(same_batches_text, each)
    return content | {"name": path.stem, "saved": saved, "said": said, "batches": told}


def fidelity_vllm(results: Path) -> Frames:
    """By machine: bias pooled by policy and model, the error of figures by model, policy, load."""
    measured = [read_json(path) for path in sorted((results / "fidelity_vllm").glob("*.json"))]
    return {"measured": [_of_machine(content) for content in measured]}


def _of_machine(content: Frames) -> Frames:
    rows = content["rows"]
    lines = pd.DataFrame(rows)
    lines["shown"] = [f"{row['error']:+.1%}{MARKS[word_for(row)]}" for row in rows]
    place = ["model", "policy", "load"]
    errors = lines.pivot_table("shown", place, "figure", "first", fill_value=NONE, sort=False)
    parts = {"all": rows}
    for column in ("policy", "model"):
        same = lines.groupby(column, sort=False)
        parts |= {str(name): part.to_dict("records") for name, part in same}
    plain = [row | {"simulated": row["as_profiled"]} for row in rows]
    if plain != rows:
        parts["all, by the profile as it is"] = plain
    return content | {
        "lines": lines,
        "errors": errors.reindex(columns=list(FIGURES), fill_value=NONE).rename(columns=FIGURES),
        "biases": _biases(parts),
        "counts": counts_text(rows),
    }


def _biases(parts: Mapping[str, list[Any]]) -> pd.DataFrame:
    """By part and figure, pooled over the rows of the part."""
    found = {
        said: [_bias(rows, figure) for rows in parts.values()] for figure, said in FIGURES.items()
    }
    return pd.DataFrame(found, index=list(parts))


def _bias(rows: list[Any], figure: str) -> str:
    known = any(row["figure"] == figure for row in rows)
    return bias_text(pooled_bias(rows, figure)) if known else NONE


def fidelity_headline(results: Path) -> Frames:
    """How far simulated figures are from measured servers and engines, and which way."""
    path = results / "fidelity_runs" / "league_real.json"
    league = read_json(path) if path.is_file() else None
    if league:
        league["biases"] = _biases({"all": league["rows"]})
    return served(results) | fidelity_vllm(results) | {"league": league, "names": FIGURES}


def predictor(results: Path) -> Frames:
    """Every head of the last training beside what was published for it, then the baselines."""
    folder = results / "predictors"
    published = read_json(folder / "published.json")["heads"]
    return {"found": read_json(folder / "summary.json"), "published": published}


def overhead(results: Path) -> Frames:
    """Seconds of a step under vLLM's own scheduler and under a policy."""
    return {"found": read_json(results / "bench" / "scheduler_overhead.json")}


def starting(results: Path) -> Frames:
    """Seconds until one engine, and until several started together, have loaded."""
    return {"found": read_json(results / "starting" / "cpu.json")}


PARTS = {
    part.__name__.replace("_", "-"): part
    for part in (
        *(holds, costs, engines, served, predictor, verify, bench, fidelity, fidelity_vllm),
        *(fidelity_headline, fidelity_runs, overhead, starting, conditions, winners, checks, plans),
        observed,
    )
}
"""By name, with the folder of results."""
