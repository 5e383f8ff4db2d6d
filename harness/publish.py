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
from harness.lanes import Job, run_all
from harness.report import readme
from harness.runs import published
from harness.runs.pool_worker import cores_here


def scenarios() -> list[Job]:
    """The scenarios of all papers, once each. Raises ValueError for a wrong claims file."""
    found: dict[str, Job] = {}
    for name in papers():
        paper = load_paper(name)
        check(paper)
        for job in reproduce.jobs_of(paper.figures, published.RESULTS, sensitivity=True):
            found.setdefault(job.name, job)
    return list(found.values())


def main() -> int:
    """Run, draw, judge and write the pages; the exit status."""
    failed = run_all(scenarios(), lanes=cores_here(), goes_on=reproduce.goes_on)
    if not reproduce.goes_on(failed):
        return failed
    for name in papers():
        if status := reproduce.main([name, "--publish", "--no-runs"]):
            return status
    return readme.main([]) or failed


if __name__ == "__main__":
    sys.exit(main())
