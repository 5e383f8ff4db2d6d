"""Generated parts of the pages that come from measurements below results/: one function each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.paths import PROFILES
from harness.costs.profiles import holds_profiles, read_profiles
from harness.costs.roofline import read_calibration
from harness.report.markdown import read_json, table
from harness.report.real_texts import order_text, same_batches_text, savings_texts

Json = dict[str, Any]
PEER = "peer_dynamo_w1_requests_per_s"
"""Figure of `make bench`: requests that a peer simulates a second, on the same load."""


def costs_part(_: Path) -> str:
    """Every folder of measured profiles, and how far a roofline is off on what it had not seen."""
    rows, rooflines = [], set()
    folders = [*filter(holds_profiles, sorted(PROFILES.iterdir()))]
    for folder in folders:
        measured = [p for p in read_profiles(folder).values() if "decode_median" in p.error]
        if not measured:
            continue
        worst = [
            f"{max(profile.error[f'{phase}_median'] for profile in measured):.1%}"
            for phase in ("decode", "prefill")
        ]
        rows.append((f"`{folder.name}`", len(measured), *worst))
        error = read_calibration(folder).error
        rooflines.add((error["decode_median"], error["prefill_median"]))
    ends = [f"{min(e):.0%} to {max(e):.0%}" for e in zip(*rooflines, strict=True)]
    header = ("profile", "measured pairs of model and tensor parallelism", "decode", "prefill")
    return (
        table(header, rows)
        + "\n\nLargest median error of an iteration on rows the fit had not seen. "
        "Pairs that were never measured use a roofline from published figures; its median error on "
        f"models it had not seen is {ends[0]} (decode) and {ends[1]} (prefill), depending on the "
        "folder. Every run records which services used it." + received_text(folders)
    )


def received_text(folders: Iterable[Path]) -> str:
    """What taking requests in takes where profiles have it, as a paragraph; else nothing."""
    said = [
        f"`{folder.name}`, {profile.model}: {1e3 * profile.received_s.first_s:.2g} ms, each "
        f"further one {1e3 * profile.received_s.more_s:.2g} ms"
        for folder in folders
        for profile in read_profiles(folder).values()
        if profile.received_s.first_s
    ]
    if not said:
        return ""
    return (
        "\n\nTaking in the first request between two iterations (`received_s`), in which nothing "
        f"is computed: {'; '.join(said)}."
    )


def predictor_part(root: Path) -> str:
    """Every head of the last training beside what was published for it, then the baselines."""
    found = read_json(root / "results" / "predictors" / "summary.json")
    published = read_json(root / "results" / "predictors" / "published.json")["heads"]
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
        f"test prompts, class bounds {bounds} tokens.\n\n" + table(header, rows)
    )


def _of_head(row: Json, published: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Cells of a head, or of a baseline, of which nothing was published."""
    printed = published.get(row["name"], ())
    return (
        f"`{row['name']}`",
        *([f"{value:.3f}" for value in printed] or ["-", "-"]),
        f"{row['accuracy']:.3f}" + (" (of 2)" if row["classes"] == 2 else ""),
        f"{row['macro_f1']:.3f}",
        f"{row['mae_tokens']:.1f}",
        f"{row['spearman']:.2f}",
        f"{row['latency_s']['mean'] * 1e3:.1f}",
        f"{row['latency_s']['p99'] * 1e3:.1f}",
    )


def verify_part(root: Path) -> str:
    """Per queue: how far the simulator is from the closed form."""
    lines = pd.DataFrame(read_json(root / "results" / "verify" / "summary.json")["lines"])
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
    return table(("queue", "lines", "largest difference", "bound", "kept"), rows)


def bench_part(root: Path) -> str:
    """Every figure of the last benchmark, with its machine; of a policy its ratio over the peer."""
    figures = read_json(root / "results" / "bench" / "summary.json")
    machine, ratios = figures.pop("machine"), policies_over_peer(figures)
    rows = [
        (
            f"`{name}`",
            f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}",
            f"{ratios[name]:.2g}" if name in ratios else "",
        )
        for name, value in figures.items()
    ]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    return f"Measured on {where}.\n\n" + table(("figure", "measured", "over the peer"), rows)


BASES = (
    "measured profile, row held out",
    "roofline, its authors left out",
    "simulated, profile fitted elsewhere",
    "its authors' own planner",
)
"""What a reader needs first; results/fidelity/summary.json has every line."""


def fidelity_part(root: Path) -> str:
    """Per source, GPU and phase: rows, and the median and worst of the lines' median errors."""
    lines = pd.DataFrame(read_json(root / "results" / "fidelity" / "summary.json")["lines"])
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
    counts, errors = ("lines", "rows"), ("median error", "worst line", "P95")
    return table(("basis", "source", "GPU", "what", *counts, *errors), rows)


def fidelity_runs_part(root: Path) -> str:
    """Per scenario and system: whole runs on real engines, the simulator's error, and batches."""
    paths = sorted((root / "results" / "fidelity_runs").glob("*.json"))
    return "\n\n".join(fidelity_run_text(path.stem, read_json(path)) for path in paths)


def fidelity_run_text(name: str, content: Json, *, brief: bool = False) -> str:
    """Of one file; `brief` leaves out what the page of real engines says of the machine."""
    at_speed = "as_profiled" in content["rows"][0] and not brief
    rows = [
        (
            row["system"],
            row["figure"],
            _measured_text(row),
            *([_number(row["as_profiled"])] if at_speed else []),
            _number(row["simulated"]),
            "-" if row["error"] is None else f"{row['error']:+.1%}",
        )
        for row in content["rows"]
    ]
    machine, seeds = content["machine"], content["rows"][0]["seeds"]
    where = f"{content['engine']}: {machine['cpu']}, {machine['cores']} cores; {seeds} seeds."
    if brief:
        where = f"{content['engine']} ([more](real-vllm.md)); {seeds} seeds."
    simulated = ("by the profile", "at the speed then") if at_speed else ("simulated",)
    shown = table(("system", "figure", "measured", *simulated, "error"), rows)
    saved = "".join(f"\n\n{text}." for text in savings_texts(content.get("savings", ())))
    saved += "".join(f"\n\n{order_text(row)}." for row in content.get("order", ()))
    if at_speed:
        saved += f"\n\n{_sentence(content['speed'])} {_sentence(content['late'])}"
    same = "\n".join(f"- {text}" for text in _batches(content.get("batches", ())))
    return f"`{name}`, {where}\n\n{shown}{saved}\n\n{same}".rstrip()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _batches(rows: Sequence[Json]) -> list[str]:
    """Systems whose batches are all the same in one sentence, each of the others in its own."""
    same = [row["system"] for row in rows if row["exact"] and row["equal"] == row["seeds"]]
    if len(same) < 2:
        return [same_batches_text(row) for row in rows]
    together = f"{', '.join(same)}: the same batches and answer lengths in all seeds"
    return [together, *(same_batches_text(row) for row in rows if row["system"] not in same)]


def _measured_text(row: Json) -> str:
    """A mean over seeds, with its 95% interval where that was kept."""
    value, low, high = (row.get(name) for name in ("measured", "low", "high"))
    ends = "" if low is None else f" [{_number(low)}, {_number(high)}]"
    return f"{_number(value)}{ends}"


def _number(value: Any) -> str:
    return f"{value:,.1f}" if value == 0 or abs(value) >= 1 else f"{value:.3g}"


def overhead_part(root: Path) -> str:
    """Seconds of a step under vLLM's own scheduler and under a policy."""
    found = read_json(root / "results" / "bench" / "scheduler_overhead.json")
    rows = [
        ("step, vLLM's own scheduler", f"{found['vllm_own_step_s'] * 1e3:.1f} ms"),
        ("step, the same order as a policy", f"{found['vllm_policy_step_s'] * 1e3:.1f} ms"),
        ("ratio of medians", f"{found['vllm_policy_step_ratio']:.3f}"),
        ("ratio of minima", f"{found['vllm_policy_step_ratio_of_minima']:.3f}"),
        ("added to scheduling, median", f"{found['vllm_policy_added_s'] * 1e6:.0f} us"),
    ]
    return table(("256 requests running", "measured"), rows)


def starting_part(root: Path) -> str:
    """Seconds until one engine, and until two started together, have loaded."""
    found = read_json(root / "results" / "starting" / "cpu.json")
    rows = [
        (
            f"{count} at once",
            f"{found['mean_s'][count]:.1f} s",
            f"{min(seconds):.1f} to {max(seconds):.1f} s",
        )
        for count, seconds in found["seconds"].items()
    ]
    rows.append(("each further replica", f"{found['further_replica_s']:.1f} s", ""))
    machine = found["machine"]
    what = f"engines of {found['model']}, {machine['cpu']}, {machine['cores']} cores"
    return table((what, "measured", "every start"), rows)


def policies_over_peer(figures: Mapping[str, float]) -> dict[str, float]:
    """By figure, requests per second of each policy on W1 over the peer's."""
    return matched_over_peer(figures, "(w1_.*_requests_per_s)")


def matched_over_peer(figures: Mapping[str, float], pattern: str) -> dict[str, float]:
    """Figures whose name matches, over the peer's; nothing where there is none of the peer."""
    peer, found = figures.get(PEER), ((re.fullmatch(pattern, it), it) for it in figures)
    return {match[1]: figures[name] / peer for match, name in found if match and peer}
