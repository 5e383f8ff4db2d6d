"""Makes all that git tracks of what follows from runs: `python -m harness.publish`.

The scenarios of every paper and variant, side by side; then figures and verdicts; then the pages
below results/pages and README's parts. Finished cells are kept, so that it can be called again.
Measurements (bench, verify, fidelity ...) have commands of their own, which take --publish.
Prints which verdicts differ from those of HEAD. The first step that fails ends it with its status.
"""

import sys
from collections.abc import Sequence

from harness import reproduce
from harness.claims import changes
from harness.claims.figures import read_figures
from harness.lanes import Job, cores_here, run_all
from harness.report import readme
from harness.runs import published
from harness.runs.config import VARIANTS


def papers() -> list[str]:
    """Those that have figures."""
    return sorted(path.parent.name for path in published.RESULTS.glob("claims/*/figures.yaml"))


def scenarios() -> list[Job]:
    """All that papers and variants read, once each."""
    found: dict[str, Job] = {}
    for paper in papers():
        of = read_figures(published.RESULTS / "claims", paper)
        for job in reproduce.jobs_of(list(of.figures.values()), VARIANTS, published.RESULTS):
            found.setdefault(job.name, job)
    return list(found.values())


def judgements() -> list[Job]:
    """Figures and verdicts from the runs that are there."""
    found = []
    for paper in papers():
        shown = read_figures(published.RESULTS / "claims", paper).variants
        for words in ([], *(["--variant", name] for name in VARIANTS if name not in shown)):
            found.append(_judgement([paper, *words]))
    return found


def _judgement(words: Sequence[str]) -> Job:
    command = ["-m", "harness.reproduce", *words, "--publish", "--no-runs"]
    return Job(" ".join(words), lambda _: command, minutes=1.0)


def main() -> int:
    """Do it all and say what changed; the exit status."""
    failed = 0
    for jobs in (scenarios(), judgements()):
        status = run_all(jobs, lanes=cores_here(), goes_on=reproduce.goes_on)
        if not reproduce.goes_on(status):
            return status
        failed = max(failed, status)
    if status := readme.main([]):
        return status
    print("Since HEAD:")
    changes.main(["HEAD"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
