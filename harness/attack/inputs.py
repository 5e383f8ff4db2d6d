"""Bad inputs through the real command: what came of each.

Every case is a process of its own, forked from one that has imported everything and has compiled
the simulator, so that a thousand take minutes. From the fork on it is the command, its words, its
exit code.
"""

import os
import runpy
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# What the command imports, and what its modules keep once they are there, is there for every case.
import harness.run  # noqa: F401
from harness.attack.cases import BASE, PROFILE, WRITTEN, Case, case_of, write_case
from harness.costs.profiles import read_profiles
from harness.paths import PROFILES, ROOT

COMMAND = str(ROOT / "harness" / "run.py")
LONGEST_S = 60.0
UNWANTED = ("traceback", "hang", "wrongly accepted")
OUTCOMES = ("accepted", "refused", "failed cell", *UNWANTED)
CRASHED = 70
"""Exit code of a case that ended in an exception, or did not end as the command does."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A case and what came of it."""

    number: int
    case: Case
    outcome: str
    words: list[str]
    said: str
    folder: Path

    @property
    def is_wanted(self) -> bool:
        """Whether it came out as it should."""
        return self.outcome not in UNWANTED

    def report(self) -> str:
        """What a person needs to see it again; the files are kept."""
        command = shlex.join(["python", "harness/run.py", *self.words])
        return f"{self.outcome}: case {self.number}\n  {command[:2000]}\n  {self.said[-300:]}"


def attack(seed: int, numbers: Iterable[int], *, at_once: int, folder: Path) -> Iterator[Tried]:
    """Try these cases of a seed, so many at a time, each in a folder of its own below `folder`.

    The folders of unwanted cases stay.
    """
    read_profiles(PROFILES / PROFILE)  # kept for every case
    _compile(folder / "compiled")
    running: dict[int, tuple[int, Case, list[str], Path, float]] = {}
    waiting = iter(numbers)
    number = next(waiting, None)
    while number is not None or running:
        while number is not None and len(running) < at_once:
            place = folder / str(number)
            place.mkdir(parents=True)
            case = case_of(seed, number)
            words = write_case(case, place)
            pid = _command(words, place / "said.txt")
            running[pid] = (number, case, words, place, time.monotonic())
            number = next(waiting, None)
        for pid, (its_number, case, words, place, started_s) in list(running.items()):
            outcome = _outcome_of(pid, case, place, started_s)
            if outcome:
                del running[pid]
                said = (place / "said.txt").read_text(errors="replace").strip()
                tried = Tried(its_number, case, outcome, words, said, place)
                if tried.is_wanted:
                    shutil.rmtree(place, ignore_errors=True)
                yield tried
        time.sleep(0.005)


def _compile(folder: Path) -> None:
    """Run what is right once, so that no case waits for the compiler and is taken for a hang.

    Raises RuntimeError where not even that runs.
    """
    pid = _command([*BASE, f"results={folder}"], folder / "said.txt")
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError((folder / "said.txt").read_text())


def _command(words: list[str], said: Path) -> int:
    """Start the command with these words; its process number."""
    said.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(words, said)
    return pid


def _become(words: list[str], said: Path) -> None:
    """The command itself, in a process that is nothing else; does not return."""
    try:
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(said.parent)
        sys.argv = [COMMAND, *words]
        runpy.run_path(COMMAND, run_name="__main__")  # ends the process
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(CRASHED)


def _outcome_of(pid: int, case: Case, place: Path, started_s: float) -> str:
    """What came of a case; nothing while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        if time.monotonic() - started_s < LONGEST_S:
            return ""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "hang"
    code = os.waitstatus_to_exitcode(status)
    said = (place / "said.txt").read_text(errors="replace")
    if (place / WRITTEN).exists():
        return "wrongly accepted"
    if "Traceback (most recent call last)" in said or code not in (0, 1, 2):
        return "traceback"
    if code == 0:
        return "wrongly accepted" if case.is_marked else "accepted"
    return "failed cell" if code == 1 else "refused"


def try_inputs(seed: int, numbers: Iterable[int], *, at_once: int) -> Counter[str]:
    """Try cases and report each unwanted one; how many came out how."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    counts: Counter[str] = Counter()
    for tried in attack(seed, numbers, at_once=at_once, folder=folder):
        counts[tried.outcome] += 1
        if not tried.is_wanted:
            print(tried.report(), flush=True)
    if not any(counts[name] for name in UNWANTED):
        shutil.rmtree(folder, ignore_errors=True)
    return counts
