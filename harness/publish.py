"""Renews all published results that follow from runs: `python -m harness.publish`.

Runs the scenarios of every paper with their variations and the authors' programs, then writes
figures, verdicts and a page per paper, and the generated parts of README.md and results/pages.
Finished cells are kept, so the command can be given again. Measurements (bench, verify, fidelity
...) have commands of their own with --publish. The first step that fails ends it with its status.
"""

import sys

from harness import reproduce
from harness.claims.judge import check
from harness.claims.paper import load_paper, papers
from harness.report import readme
from harness.runs import published


def scenarios() -> list[str]:
    """The scenarios of all papers, once each. Raises ValueError for a wrong claims file."""
    found: dict[str, None] = {}
    for name in papers():
        paper = load_paper(name)
        check(paper)
        found |= dict.fromkeys(reproduce.runs_of(paper.figures, sensitivity=True))
    return list(found)


def main() -> int:
    """Run, draw, judge and write the pages; the exit status."""
    failed = reproduce.run_scenarios(scenarios(), published.RESULTS)
    if not reproduce.goes_on(failed):
        return failed
    for name in papers():
        if status := reproduce.main([name, "--publish", "--no-runs"]):
            return status
    readme.write_pages()
    return failed


if __name__ == "__main__":
    sys.exit(main())
