"""The command: compose a configuration, check it, run its cells, print the table.

    python harness/run.py +scenario=ensembling
    python harness/run.py system=max_heuristic workload.requests=2000
    python harness/run.py -m seed=0,1 system=max_heuristic,min_heuristic

Bad input ends in one sentence and exit code 2.
"""

import os
import signal
import sys
from pathlib import Path

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 128 + signal.SIGTERM
_SWEEP = {"-m", "--multirun"}
_LAST = {INTERRUPTED: "interrupted", TERMINATED: "ended by SIGTERM"}


def _said_last(code: int) -> str:
    return f"{_LAST[code]}; finished cells are kept\n"


def _stop_at_once(kind: int, _: object) -> None:
    """An end while modules are imported: nothing runs yet, and they might take it for an error."""
    os.write(2, _said_last(128 + kind).encode())
    os._exit(128 + kind)


ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stop_at_once)
    signal.signal(signal.SIGTERM, _stop_at_once)
    # Started as a script, Python looks for modules in harness/ first, where none may hide a
    # standard one; what we want found is the project.
    sys.path[0] = str(ROOT)

from collections.abc import Mapping, Sequence
from typing import NoReturn

from harness import api
from harness.config.trust import without_trust
from harness.engines.ray_session import RayLost
from harness.runs.composed_cells import Matrix
from harness.runs.composing import BAD_INPUT, Composer, as_command, no_choice, sentence
from harness.runs.ending import by_sigterm, end_process, terminate
from harness.runs.figures import check_shown
from harness.runs.limits import loose_limits
from harness.runs.matrix import axes_of
from harness.runs.record import RecordError
from harness.runs.sweep import Sweep
from harness.runs.table import FAILED as HAS_FAILED
from harness.runs.table import print_cells, print_varied
from harness.runs.tracking import log_scenario
from harness.runs.unused_gpus import unused_gpus

FAILED = 1
"""Exit code where a cell has failed, or what runs cells or keeps results."""
REFUSED = 2
"""Exit code of bad input, found before anything has run."""


def run(composer: Composer) -> int:
    """All cells of a command line; prints the table and mirrors it. The exit code.

    Raises the error of bad input, before anything runs.
    """
    matrix = Matrix(composer)
    config = matrix.config
    check_shown(config.shows, drawn=config.uncertainty_draws > 0)
    done = api.swept(matrix)
    for said in _axes_given(composer.given, axes_of(config.matrix)):
        print(said, file=sys.stderr)
    _report(matrix, done)
    return FAILED if done.failed else 0


def _axes_given(given: Mapping[str, str], axes: Mapping[str, object]) -> list[str]:
    """A sentence for each axis that is none, since the command line gives its key."""
    return [
        f"{word}: no axis of this run, which would else have {axis} at each of {axes[axis]}"
        for axis, word in given.items()
        if axis in axes
    ]


def _report(matrix: Matrix, done: Sweep) -> None:
    """Print and mirror what has run; the last line names what has failed."""
    config, given = matrix.config, matrix.composer.given
    rows = api.frame_of(matrix, done)
    own = {run: place.setting for run, place in done.places.items() if not place.varied}
    shown = rows.loc[[run for run in own if run in rows.index]]
    if len(done.failed) < len(rows):
        print_cells(shown, own, config.compare, shows=config.shows)
        may_vary = config.vary if config.variant == "paper" and not config.variations else {}
        for said in loose_limits(shown, {*given, *axes_of(config.matrix)}):
            print(said)
        if idle := unused_gpus(shown):
            print(idle)
        print_varied(
            [place.varied for place in done.places.values() if place.varied],
            left_out=[key for key in may_vary if key not in given],
        )
        if config.tracking == "wandb":
            log_scenario(config.name, rows[rows[HAS_FAILED] == ""], folder=done.folder.parent)
    sys.stdout.flush()
    for said in done.said_of_failures():
        print(said, file=sys.stderr)


def main() -> int:
    """Parse the command line and run. Returns the exit code."""
    # Hydra would print its own report and exit with 1; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    codes: list[int] = []
    has_begun = False

    def job(composer: Composer) -> None:
        nonlocal has_begun
        has_begun = True
        codes.append(_job(composer))

    try:
        _refuse_no_folder()
        sys.argv[1:] = without_trust(sys.argv[1:])
        as_command(job)
        if not codes and _SWEEP.issuperset(word for word in sys.argv[1:] if word[:1] == "-"):
            codes.append(_refused(ValueError("there is nothing to run: a range of -m is empty")))
    except BAD_INPUT as error:
        codes.append(_refused(error))
    except TypeError as error:
        # Hydra's, of a word whose value it cannot compose.
        if has_begun:
            raise
        said = f"{' '.join(sys.argv[1:])}: not what Hydra composes: {error}"
        codes.append(_refused(ValueError(no_choice(sys.argv[1:]) or said)))
    except KeyboardInterrupt:
        codes = [TERMINATED if by_sigterm.is_set() else INTERRUPTED]
    code = _code_of(codes)
    if code in _LAST:
        print(_said_last(code), end="", file=sys.stderr)
    return code


def _refuse_no_folder() -> None:
    """Raise ValueError where the working folder, which Hydra asks for, has been removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ValueError("the working folder has been removed: change to another one") from None


def _code_of(codes: Sequence[int]) -> int:
    """Of several jobs: that of all where they are the same, else that some have failed."""
    return codes[0] if len(set(codes)) == 1 else FAILED if codes else 0


def _job(composer: Composer) -> int:
    """Run; the exit code. Other jobs of the same command go on after an error."""
    try:
        return run(composer)
    except (RecordError, RayLost) as error:
        _refused(error)
        return FAILED
    except BAD_INPUT as error:  # among them an OSError: Hydra's, of a file that is not there
        return _refused(error)
    except OSError as error:
        _refused(error)
        return FAILED


def _refused(error: Exception) -> int:
    print(f"error: {sentence(error, sys.argv[1:])}", file=sys.stderr)
    return REFUSED


def run_and_end() -> NoReturn:
    """Follow the command line of this process, and end it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    end_process(main())


if __name__ == "__main__":
    run_and_end()
