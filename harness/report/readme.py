"""Writes the generated parts of README.md: claims beside verdicts, and how well the costs fit.

`python -m harness.report` rewrites what stands between `<!-- generated: NAME -->` and
`<!-- end: NAME -->`; `--check` only says whether it would change anything (exit code 1 if so).
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.costs.profiles import read_profiles
from harness.paths import PROFILES
from harness.report.parts import (
    bench_part,
    fidelity_part,
    fidelity_runs_part,
    fidelity_vllm_part,
    overhead_part,
    predictor_part,
    ranges_part,
    verdict_changes_part,
    verify_part,
)
from harness.runs.record import ROOT

README = ROOT / "README.md"


def claims_part(root: Path) -> str:
    """Every claim with a check: the paper's figure, ours, verdict and note."""
    rows = ["| claim | paper | ours [95% over seeds] | verdict | note |", "|---|---|---|---|---|"]
    not_run: dict[str, int] = {}
    for path in sorted((root / "results" / "claims").glob("*_verdicts.json")):
        for claim in json.loads(path.read_text(encoding="utf-8")):
            if claim["verdict"] == "not run":
                paper = claim["id"].partition(".")[0]
                not_run[paper] = not_run.get(paper, 0) + 1
                continue
            rows.append(_row(claim))
    rest = ", ".join(f"{count} of {paper}" for paper, count in not_run.items())
    return "\n".join(rows) + (f"\n\nNot run yet: {rest}." if rest else "")


def _row(claim: Mapping[str, Any]) -> str:
    paper = claim["paper"]
    stated = " to ".join(map(str, paper)) if isinstance(paper, list) else str(paper)
    cells = (f"`{claim['id']}`", stated, claim["ours"], f"**{claim['verdict']}**", claim["note"])
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def costs_part(_: Path) -> str:
    """Every folder of measured profiles, and how far a roofline is off on what it had not seen."""
    rows = [
        "| profile | measured pairs of model and tensor parallelism | decode | prefill |",
        "|---|---|---|---|",
    ]
    rooflines = set()
    for folder in sorted(path.parent for path in PROFILES.glob("*/roofline.json")):
        measured = [p for p in read_profiles(folder).values() if "decode_median" in p.error]
        if not measured:
            continue
        worst = [
            f"{max(profile.error[f'{phase}_median'] for profile in measured):.1%}"
            for phase in ("decode", "prefill")
        ]
        rows.append(f"| `{folder.name}` | {len(measured)} | {worst[0]} | {worst[1]} |")
        error = json.loads((folder / "roofline.json").read_text(encoding="utf-8"))["error"]
        rooflines.add((error["decode_median"], error["prefill_median"]))
    ends = [f"{min(e):.0%} to {max(e):.0%}" for e in zip(*rooflines, strict=True)]
    return (
        "\n".join(rows) + "\n\nLargest median error of an iteration on rows the fit had not seen. "
        "Pairs that were never measured use a roofline from published figures; its median error on "
        f"models it had not seen is {ends[0]} (decode) and {ends[1]} (prefill), depending on the "
        "folder. Every run records which services used it."
    )


PARTS: Mapping[str, Callable[[Path], str]] = {
    "claims": claims_part,
    "costs": costs_part,
    "ranges": ranges_part,
    "predictor": predictor_part,
    "verify": verify_part,
    "bench": bench_part,
    "fidelity": fidelity_part,
    "fidelity-vllm": fidelity_vllm_part,
    "fidelity-runs": fidelity_runs_part,
    "verdict-changes": verdict_changes_part,
    "overhead": overhead_part,
}


def rewritten(text: str, root: Path) -> str:
    """`text` with every generated part as it should be. ValueError for a part without its end."""
    for name, part in PARTS.items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        if start not in text:
            continue
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"README.md has {start} but no {end}")
        text = f"{before}{start}\n{part(root)}\n{end}{after}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite README.md, or check it; the exit status."""
    parser = argparse.ArgumentParser(description="Write the generated parts of README.md.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if it would")
    given = parser.parse_args(arguments)
    text = README.read_text(encoding="utf-8")
    new = rewritten(text, ROOT)
    if given.check:
        return int(new != text)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
