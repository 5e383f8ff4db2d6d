"""Makes all that git tracks of what follows from runs: `python -m harness.publish`.

For every paper and variant: runs, figures, verdicts; then the pages below results/pages and
README's parts. Finished cells are kept, so that it can be called again. Measurements (bench,
verify, fidelity ...) have commands of their own, which take --publish.
Prints which verdicts differ from those of HEAD. The first step that fails ends it with its status.
"""

import sys
from collections.abc import Callable
from functools import partial

from harness import reproduce
from harness.claims import changes
from harness.claims.figures import read_figures
from harness.report import readme
from harness.runs import published
from harness.runs.config import VARIANTS

Step = Callable[[], int]


def papers() -> list[str]:
    """Those that have figures."""
    return sorted(path.parent.name for path in published.RESULTS.glob("claims/*/figures.yaml"))


def steps() -> list[Step]:
    """What is done, in order."""
    found: list[Step] = []
    for paper in papers():
        found.append(partial(reproduce.main, [paper, "--publish"]))
        shown = read_figures(published.RESULTS / "claims", paper).variants
        for variant in (name for name in VARIANTS if name not in shown):
            found.append(partial(reproduce.main, [paper, "--publish", "--variant", variant]))
    return [*found, partial(readme.main, [])]


def main() -> int:
    """Do it all and say what changed; the exit status."""
    for step in steps():
        if status := step():
            return status
    print("Since HEAD:")
    changes.main(["HEAD"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
