"""The pages' parts on how near simulated figures come to those of real vLLM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from harness.report.agreement import AgreementWord, bias_text, counts_text, pooled_bias, word_for
from harness.report.markdown import read_json, table
from harness.report.served import served_headline

FIGURES = {
    "makespan_s": "makespan",
    "jct_s_mean": "mean JCT",
    "jct_s_p99": "P99 JCT",
    "ttft_s_mean": "mean TTFT",
    "tpot_s_mean": "mean TPOT",
}
MARKS = {
    AgreementWord.AGREES: "",
    AgreementWord.DIFFERS: " **differs**",
    AgreementWord.INCONCLUSIVE: " ?",
}


def fidelity_vllm_part(root: Path) -> str:
    """Pooled bias by policy and model, then the error of figures by model, policy and load."""
    tables = []
    for content in _measured(root):
        machine, lines = content["machine"], pd.DataFrame(content["rows"])
        rows = [
            (*key, *(_marked(part[part["figure"] == name]) for name in FIGURES))
            for key, part in lines.groupby(["model", "policy", "load"], sort=False)
        ]
        where = f"{content['engine']}: {machine['cpu']}, {machine['cores']} cores"
        said = (
            f"{counts_text(content['rows'])}. Median error {lines['error'].abs().median():.1%}, "
            f"median noise {lines['noise'].median():.1%}; "
            f"{lines['repetitions'].iloc[0]} interleaved repetitions."
        )
        shown = table(("model", "policy", "load", *FIGURES.values()), rows)
        more = "".join(f" {text}." for text in _conditions(content))
        biases = _biases(content["rows"])
        tables.append(f"*Measured* on {where}; {said}{more}\n\n{biases}\n\n{shown}")
    return "\n\n".join(tables)


def _conditions(content: dict[str, Any]) -> Iterator[str]:
    """How fast the machine was, how late requests were taken in, and what else is to be known."""
    for name in ("speed", "late", "note"):
        if said := content.get(name):
            yield said[0].upper() + said[1:]


def fidelity_headline_part(root: Path) -> str:
    """Sentences: how far simulated figures are from measured servers and engines, and which way."""
    sentences = [served_headline(root)]
    for content in _measured(root):
        rows = content["rows"]
        biases = _headline_biases(rows)
        at_speed = " at the machine's speed of the same minutes" if "speed" in content else ""
        note = f"; {content['note'].partition(';')[0]}" if "note" in content else ""
        by_model = ", ".join(
            f"{model} {pooled_bias(part, 'jct_s_mean').value:+.1%}"
            for model, part in _parts(rows, "model").items()
        )
        sentences.append(
            f"Simulated{at_speed} against *measured* on {content['engine']} "
            f"({content['machine']['cpu']}{note}), bias pooled over settings, with its 95% "
            f"interval: {biases} (mean JCT by model: {by_model}); {counts_text(rows)}."
        )
    return " ".join([*sentences, *_league_sentence(root)])


def _headline_biases(rows: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{FIGURES[name]} {bias_text(pooled_bias(rows, name))}"
        for name in ("makespan_s", "jct_s_mean", "ttft_s_mean")
    )


def _league_sentence(root: Path) -> Iterator[str]:
    """How near whole runs of many schedulers come, and whether their order is the same."""
    path = root / "results" / "fidelity_runs" / "league_real.json"
    if not path.is_file():
        return
    content = read_json(path)
    orders = {row["figure"]: row["rank_correlation"] for row in content["order"]}
    names = [name for name in FIGURES if name in orders]
    biases = ", ".join(
        f"{FIGURES[it]} {bias_text(pooled_bias(content['rows'], it))}" for it in names
    )
    ranks = ", ".join(f"{orders[name]:.2f} by {FIGURES[name]}" for name in names)
    yield (
        f"{content['order'][0]['systems']} schedulers on a backlog (`league_real`, "
        f"{content['machine']['cpu']}): {biases}; rank correlation of their order, measured and "
        f"simulated: {ranks}."
    )


def _measured(root: Path) -> Iterator[Any]:
    """What was measured, by machine."""
    return map(read_json, sorted((root / "results" / "fidelity_vllm").glob("*.json")))


def _biases(rows: list[dict[str, Any]]) -> str:
    """Pooled over all settings, and over those of each policy and of each model."""
    parts = {"all": rows} | _parts(rows, "policy") | _parts(rows, "model")
    if any(row["as_profiled"] != row["simulated"] for row in rows):
        plain = [row | {"simulated": row["as_profiled"]} for row in rows]
        parts["all, by the profile as it is"] = plain
    return table(
        ("bias, pooled over", *FIGURES.values()),
        [(name, *(_bias(part, figure) for figure in FIGURES)) for name, part in parts.items()],
    )


def _bias(rows: list[dict[str, Any]], figure: str) -> str:
    known = any(row["figure"] == figure for row in rows)
    return bias_text(pooled_bias(rows, figure)) if known else "-"


def _parts(rows: list[dict[str, Any]], column: str) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(str(row[column]) for row in rows)
    return {name: [row for row in rows if row[column] == name] for name in names}


def _marked(rows: pd.DataFrame) -> str:
    """An error with its mark; runs of few requests lack percentiles."""
    if rows.empty:
        return "-"
    row = {str(name): value for name, value in rows.iloc[0].items()}
    return f"{row['error']:+.1%}{MARKS[word_for(row)]}"
