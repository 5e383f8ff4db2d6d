"""Writes the generated parts of README.md and of the pages below results/pages.

`python -m harness.report` rewrites what stands between `<!-- generated: NAME -->` and
`<!-- end: NAME -->`; the text around it is written by hand. `--check` changes nothing and names the
files that it would change (exit code 1 if any).
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.paths import ROOT
from harness.report.claims import holds_part
from harness.report.measured import (
    bench_part,
    costs_part,
    fidelity_part,
    fidelity_runs_part,
    overhead_part,
    predictor_part,
    starting_part,
    verify_part,
)
from harness.report.real_vllm import fidelity_headline_part, fidelity_vllm_part

MARK = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)

PARTS: Mapping[str, Callable[[Path], str]] = {
    "holds": holds_part,
    "costs": costs_part,
    "predictor": predictor_part,
    "verify": verify_part,
    "bench": bench_part,
    "fidelity": fidelity_part,
    "fidelity-vllm": fidelity_vllm_part,
    "fidelity-headline": fidelity_headline_part,
    "fidelity-runs": fidelity_runs_part,
    "overhead": overhead_part,
    "starting": starting_part,
}
"""By name."""


def rewritten(text: str, root: Path) -> str:
    """`text` with every generated part as it should be. ValueError for a part without its end."""

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in PARTS:
            raise ValueError(f"there is no generated part {name}; there are {', '.join(PARTS)}")
        return f"<!-- generated: {name} -->\n{PARTS[name](root)}\n<!-- end: {name} -->"

    new = MARK.sub(part, text)
    for start in re.findall(r"<!-- generated: .* -->", MARK.sub("", text)):
        raise ValueError(f"{start} has no {start.replace('generated', 'end')}")
    return new


def pages(root: Path) -> list[Path]:
    """What has generated parts."""
    return [root / "README.md", *sorted((root / "results" / "pages").glob("*.md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the pages, or check them; the exit status."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the pages.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if it would")
    given = parser.parse_args(arguments)
    stale = 0
    for page in pages(ROOT):
        text = page.read_text(encoding="utf-8")
        new = rewritten(text, ROOT)
        if new == text:
            continue
        stale += 1
        if given.check:
            print(f"{page.relative_to(ROOT)} is not up to date", file=sys.stderr)
        else:
            page.write_text(new, encoding="utf-8")
    return int(given.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
