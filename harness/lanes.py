"""Commands side by side: as many at a time as there are cores, longest first.

A scenario with one worker needs no other process, and no core is idle while it starts or reports.
One that would outlast all the others together has every core to itself; so has one on real
engines, whose seconds are measured.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.paths import ROOT
from harness.runs import published
from harness.runs.ending import by_sigterm
from harness.runs.pool_worker import end_with_parent
from harness.runs.progress import EVERY_S, SILENT
from harness.yaml_files import read_yaml

FAILED = 1
"""Exit status of a scenario some of whose cells have failed, or that a signal has ended."""
TOLD_S = 10.0
"""Within which a command ends that was told by Ctrl-C."""
_LOOKS_EVERY_S = 0.1
# Said before Python starts: threads of a library would take what other commands have.
_ALONE = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Job:
    """A command of Python; `words_with` has its words if it is to keep so many cores busy.

    `minutes` says roughly how long it takes beside the others; `alone` that none may run beside it.
    """

    name: str
    words_with: Callable[[int], Sequence[str]]
    minutes: float
    alone: bool = False


def scenario_job(said: str, results: Path, *, alone: bool = False) -> Job:
    """A scenario with what else harness/run.py is to be told: `NAME KEY=VALUE ...`."""
    name, *others = said.split()
    words = [str(ROOT / "harness" / "run.py"), f"+scenario={name}", *others]
    if results != published.RESULTS:
        words.append(f"results={_quoted(str(results.resolve()))}")
    return Job(said, lambda cores: [*words, f"workers={cores}"], _expected_minutes(name), alone)


def _quoted(text: str) -> str:
    """A text as a value that Hydra takes letter by letter."""
    kept = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{kept}'"


def _expected_minutes(scenario: str) -> float:
    """As its file says."""
    path = ROOT / "scenarios" / "scenario" / f"{scenario}.yaml"
    content = read_yaml(path) if path.is_file() else {}
    return float(content.get("expected_minutes", 1.0))


def split(jobs: Sequence[Job], lanes: int) -> tuple[list[Job], list[Job]]:
    """Commands that run alone, and commands that share the lanes; longest first."""
    sharing = sorted((job for job in jobs if not job.alone), key=lambda job: -job.minutes)
    own = [job for job in jobs if job.alone]
    while sharing and lanes * sharing[0].minutes > sum(job.minutes for job in sharing):
        own.append(sharing.pop(0))
    if len(sharing) == 1:
        own.append(sharing.pop())
    return own, sharing


def run_all(jobs: Sequence[Job], *, lanes: int, goes_on: Callable[[int], bool]) -> int:
    """Run them; the worst exit status.

    After a status with which it does not go on no further job is started; that status is the one
    returned. Commands that run side by side print their output when they end.
    """
    own, sharing = split(jobs, lanes)
    worst = 0
    for together, at_once in (*(([job], 1) for job in own), (sharing, lanes)):
        status = _together(together, lanes=at_once, cores=lanes // at_once, goes_on=goes_on)
        if not goes_on(status):
            return status
        worst = max(worst, status)
    return worst


def _together(
    jobs: Sequence[Job], *, lanes: int, cores: int, goes_on: Callable[[int], bool]
) -> int:
    """Run jobs, so many at a time, each on so many cores; see `run_all`."""
    left, running, statuses = list(jobs), list[_Running](), list[int]()
    try:
        with _Bar(len(jobs)) as bar:
            while left or running:
                while left and len(running) < lanes:
                    running.append(_Running.start(left.pop(0), cores, shows=len(jobs) == 1))
                    bar.says([one.job.name for one in running])
                ended = [one for one in running if one.child.poll() is not None]
                for one in ended:
                    running.remove(one)
                    with bar.hidden():
                        statuses.append(one.end())
                    bar.says([it.job.name for it in running], done=len(statuses))
                    if not goes_on(statuses[-1]):
                        left.clear()
                if running and not ended:
                    bar.tick([one.job.name for one in running])
                    time.sleep(_LOOKS_EVERY_S)
    except BaseException as end:
        # Of Ctrl-C a terminal has told them, too; each has cells to keep and a last word to say.
        told = isinstance(end, KeyboardInterrupt) and not by_sigterm(end)
        _end_all(running, by_themselves_s=TOLD_S if told else 0.0)
        raise
    stopping = [status for status in statuses if not goes_on(status)]
    return stopping[0] if stopping else max(statuses, default=0)


def _end_all(running: Sequence["_Running"], *, by_themselves_s: float) -> None:
    """Have all end: commands that still run are told to, and print their last output."""
    until_s = time.monotonic() + by_themselves_s
    while time.monotonic() < until_s and any(one.child.poll() is None for one in running):
        time.sleep(_LOOKS_EVERY_S)
    for one in running:
        one.child.terminate()
    for one in running:
        one.child.wait()
    with suppress(OSError):  # stdout may be closed
        for one in running:
            one.end()


@dataclass(frozen=True, slots=True)
class _Running:
    """A command that has been started.

    Its table of cells is dropped; sentences and progress on stderr are shown, of commands side by
    side when each ends.
    """

    job: Job
    child: "subprocess.Popen[bytes]"
    errors: IO[bytes] | None

    @classmethod
    def start(cls, job: Job, cores: int, *, shows: bool) -> "_Running":
        """Start a command."""
        errors = None if shows else TemporaryFile()  # noqa: SIM115 - `end` closes it
        child = subprocess.Popen(
            [sys.executable, *job.words_with(cores)],
            cwd=ROOT,
            env=os.environ | _ALONE | ({} if shows else {SILENT: "1"}),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            preexec_fn=end_with_parent,
        )
        return cls(job, child, errors)

    def end(self) -> int:
        """Wait for it and print its sentences; its exit status."""
        status = self.child.wait()
        if self.errors is not None:
            with self.errors as file:
                file.seek(0)
                sys.stderr.write(file.read().decode(errors="replace"))
            sys.stderr.flush()
        if status < 0:
            print(f"error: {self.job.name} was ended by signal {-status}", file=sys.stderr)
            return FAILED
        return status


class _Bar:
    """How many of several commands have ended, and which run: a bar, or a line now and then."""

    def __init__(self, jobs: int) -> None:
        console = Console(stderr=True)
        self._is_plain = jobs > 1 and not console.is_terminal
        self._jobs, self._done = jobs, 0
        self._started_s = self._printed_s = time.monotonic()
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=jobs < 2 or not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=jobs)

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While others write."""
        self._bar.stop()
        yield
        self._bar.start()

    def says(self, running: Sequence[str], *, done: int | None = None) -> None:
        """Show which commands run, and how many have ended."""
        self._done = self._done if done is None else done
        self._bar.update(self._task, description=", ".join(running), completed=done)

    def tick(self, running: Sequence[str]) -> None:
        """Print a line where ten seconds have passed since the last one and there is no bar."""
        now_s = time.monotonic()
        if self._is_plain and now_s >= self._printed_s + EVERY_S:
            self._printed_s = now_s
            print(
                f"{self._done} of {self._jobs} scenarios done, {now_s - self._started_s:.0f} s, "
                f"running: {', '.join(running)}",
                file=sys.stderr,
                flush=True,
            )
