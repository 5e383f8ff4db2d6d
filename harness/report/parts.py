"""Generated parts of README.md that come from the figures under results/: one function each."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from harness.fidelity.real_runs import saving_text

Json = Mapping[str, Any]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


PRINTED = {
    "reg_l1": "regression-l1",
    "reg_mse": "regression-mse",
    "cls": "classification",
    "ord_l1": "ordinal-l1",
    "ord_mse": "ordinal-mse",
    "bin": "binary",
}
"""How the claims call the heads of a proxy model."""


def predictor_part(root: Path) -> str:
    """Every head of the last training beside what was published for it, then the baselines."""
    found = _read(root / "results" / "predictors" / "summary.json")
    published = _published(root / "results" / "claims")
    rows = [_of_head(row, published) for row in (*found["heads"], *found["baselines"])]
    accuracy = ("paper: accuracy", "paper: F1", "accuracy", "macro F1")
    header = ("head", *accuracy, "MAE tokens", "Spearman", "mean ms", "P99 ms")
    split, machine = found["split"], found["machine"]
    bounds = ", ".join(map(str, found["class_bounds_tokens"]))
    encoder = "one encoder for all heads" if found["shared_encoder"] else "an encoder per head"
    return (
        f"*Measured* on {machine['cpu']}, {found['threads']} of {machine['cores']} cores, in "
        f"{found['minutes']:.0f} minutes: base `{found['base']}`, {encoder}, "
        f"{split['train']:,} training, {split['validation']:,} validation and {split['test']:,} "
        f"test prompts, class bounds {bounds} tokens.\n\n" + _table(header, rows)
    )


def _of_head(row: Json, published: Mapping[str, Sequence[float | None]]) -> tuple[str, ...]:
    """Cells of a head, or of a baseline, of which nothing was published."""
    printed = published.get(PRINTED.get(row["name"], ""), (None, None))
    return (
        f"`{row['name']}`",
        *("-" if value is None else f"{value:.3f}" for value in printed[:2]),
        f"{row['accuracy']:.3f}" + (" (of 2)" if row["classes"] == 2 else ""),
        f"{row['macro_f1']:.3f}",
        f"{row['mae_tokens']:.1f}",
        f"{row['spearman']:.2f}",
        f"{row['latency_s']['mean'] * 1e3:.1f}",
        f"{row['latency_s']['p99'] * 1e3:.1f}",
    )


def _published(folder: Path) -> dict[str, Sequence[float | None]]:
    """Accuracy, F1 and more of every head, as the claims of a paper have it."""
    for path in sorted(folder.glob("*.yaml")):
        for claim in yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]:
            if claim["id"].endswith(".tab2.ablation"):
                return dict(claim["paper"])
    return {}


def verify_part(root: Path) -> str:
    """Per queue: how far the simulator is from the closed form."""
    lines = pd.DataFrame(_read(root / "results" / "verify" / "summary.json")["lines"])
    rows = [
        (
            queue,
            len(part),
            f"{part['difference'].abs().max():.3%}",
            f"{part['bound'].max():.1%}",
            "yes" if part["holds"].all() else "**no**",
        )
        for queue, part in lines.groupby("queue", sort=False)
    ]
    return _table(("queue", "lines", "largest difference", "bound", "kept"), rows)


def bench_part(root: Path) -> str:
    """Every figure of the last benchmark, with its machine."""
    figures = _read(root / "results" / "bench" / "summary.json")
    machine = figures.pop("machine")
    rows = [
        (f"`{name}`", f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}")
        for name, value in figures.items()
    ]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    return f"Measured on {where}.\n\n" + _table(("figure", "measured"), rows)


BASES = (
    "measured profile, row held out",
    "roofline, its authors left out",
    "simulated, profile fitted elsewhere",
    "its authors' own planner",
)
"""What a reader needs first; results/fidelity/summary.json has every line."""


def fidelity_part(root: Path) -> str:
    """Per source, GPU and phase: rows, and the median and worst of the lines' median errors."""
    lines = pd.DataFrame(_read(root / "results" / "fidelity" / "summary.json")["lines"])
    kept = lines[lines["basis"].isin(BASES)].dropna(subset=["median_error"])
    rows = [
        (
            *key,
            len(part),
            f"{part['rows'].sum():,.0f}",
            f"{part['median_error'].median():.1%}",
            f"{part['median_error'].max():.1%}",
            f"{part['p95_error'].median():.1%}" if part["p95_error"].notna().any() else "-",
        )
        for key, part in kept.groupby(["basis", "source", "gpu", "what"], sort=True)
    ]
    header = (
        "basis",
        "source",
        "GPU",
        "what",
        "lines",
        "rows",
        "median error",
        "worst line",
        "P95",
    )
    return _table(header, rows)


def ranges_part(root: Path) -> str:
    """Per scenario that sweeps what a paper leaves open: the range of each comparison."""
    rows = [
        (
            f"`{path.stem}`",
            e["system"],
            e["axis"],
            e["value"],
            e["count"],
            f"{e['low']:.2f} to {e['high']:.2f}",
        )
        for path in sorted((root / "results" / "ranges").glob("*.json"))
        for e in _read(path)
    ]
    header = (
        "scenario",
        "system",
        "open choice",
        "value",
        "runs",
        "end to end over the reference's",
    )
    return _table(header, rows)


FIGURES = {
    "makespan_s": "makespan",
    "jct_s_mean": "mean JCT",
    "jct_s_p99": "P99 JCT",
    "ttft_s_mean": "mean TTFT",
    "tpot_s_mean": "mean TPOT",
}


def fidelity_vllm_part(root: Path) -> str:
    """Per model, policy and load: error of every figure, and the noise; how many are near."""
    tables = []
    for path in sorted((root / "results" / "fidelity_vllm").glob("*.json")):
        content = _read(path)
        lines = pd.DataFrame(content["rows"])
        rows = [
            (*key, *(_with_noise(part[part["figure"] == name]) for name in FIGURES))
            for key, part in lines.groupby(["model", "policy", "load"], sort=False)
        ]
        machine = content["machine"]
        error, noise = lines["error"].abs().median(), lines["noise"].median()
        near = (
            f"{lines['within'].sum()} of {len(lines)} figures are within 3% (makespan, mean JCT), "
            "5% (TTFT, TPOT) or 10% (P99), or within the noise (marked \\* where not). Median "
            f"error {error:.1%}, median noise {noise:.1%}; "
            f"{lines['repetitions'].iloc[0]} interleaved repetitions."
        )
        where = f"{content['engine']}: {machine['cpu']}, {machine['cores']} cores."
        table = _table(("model", "policy", "load", *FIGURES.values()), rows)
        tables.append(f"*Measured* on {where} {near}\n\n{table}")
    return "\n\n".join(tables)


def _with_noise(rows: pd.DataFrame) -> str:
    (row,) = rows.to_dict("records")
    mark = "" if row["within"] else " \\*"
    return f"{row['error']:+.1%} ({row['noise']:.1%}){mark}"


def fidelity_runs_part(root: Path) -> str:
    """Per scenario and system: whole runs on real engines, and the simulator's error."""
    tables = []
    for path in sorted((root / "results" / "fidelity_runs").glob("*.json")):
        content = _read(path)
        rows = [
            (
                row["system"],
                row["figure"],
                f"{row['measured']:,.1f}",
                f"{row['simulated']:,.1f}",
                "-" if row["error"] is None else f"{row['error']:+.1%}",
            )
            for row in content["rows"]
        ]
        machine, seeds = content["machine"], content["rows"][0]["seeds"]
        where = f"{content['engine']}: {machine['cpu']}, {machine['cores']} cores; {seeds} seeds."
        table = _table(("system", "figure", "measured", "simulated", "error"), rows)
        saved = "".join(f"\n\n{saving_text(row)}." for row in content.get("savings", ()))
        tables.append(f"`{path.stem}`, {where}\n\n{table}{saved}")
    return "\n\n".join(tables)


def verdict_changes_part(root: Path) -> str:
    """Claims whose verdict differs between the paper and its authors' program."""
    rows = []
    for path in sorted((root / "results" / "claims").glob("*_verdicts_code.json")):
        papers = {claim["id"]: claim for claim in _read(path.with_name(_paper_file(path)))}
        for code in _read(path):
            paper = papers[code["id"]]
            if (
                "not run" not in (code["verdict"], paper["verdict"])
                and code["ours"] != paper["ours"]
            ):
                differs = "yes" if code["verdict"] != paper["verdict"] else ""
                verdicts = paper["verdict"], code["verdict"]
                rows.append((f"`{code['id']}`", paper["ours"], code["ours"], *verdicts, differs))
    header = ("claim", "paper's method", "its program", "verdict", "verdict", "changes")
    return _table(header, rows)


def _paper_file(path: Path) -> str:
    return path.name.replace("_verdicts_code", "_verdicts")


def overhead_part(root: Path) -> str:
    """Seconds of a step under vLLM's own scheduler and under a policy."""
    found = _read(root / "results" / "bench" / "scheduler_overhead.json")
    rows = [
        ("step, vLLM's own scheduler", f"{found['vllm_own_step_s'] * 1e3:.1f} ms"),
        ("step, the same order as a policy", f"{found['vllm_policy_step_s'] * 1e3:.1f} ms"),
        ("ratio of medians", f"{found['vllm_policy_step_ratio']:.3f}"),
        ("ratio of minima", f"{found['vllm_policy_step_ratio_of_minima']:.3f}"),
        ("added to scheduling, median", f"{found['vllm_policy_added_s'] * 1e6:.0f} us"),
    ]
    return _table(("256 requests running", "measured"), rows)
