"""Commands side by side: which run alone, what is printed, and how they end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harness.lanes import Job, run_all, scenario_job, split
from harness.paths import ROOT
from harness.runs import published
from harness.yaml_files import read_yaml


def job(name: str, minutes: float = 1.0, *, program: str = "", alone: bool = False) -> Job:
    """A command that runs a Python text."""
    return Job(name, lambda cores: ["-c", program, str(cores)], minutes, alone)


def wait_for(files: list[Path], *, within_s: float) -> None:
    """Until all are there, or so long."""
    until_s = time.monotonic() + within_s
    while not all(path.exists() for path in files) and time.monotonic() < until_s:
        time.sleep(0.05)


def names(jobs: list[Job]) -> str:
    """In their order."""
    return "".join(job.name for job in jobs)


@pytest.mark.parametrize(
    ("minutes", "lanes", "own", "sharing"),
    [
        ((1, 5, 3), 2, "bca", ""),
        ((4, 5, 3), 2, "", "bac"),
        ((4, 5, 3), 1, "", "bac"),
        ((2, 9, 2, 2), 2, "b", "acd"),
        ((1, 5, 2), 4, "bca", ""),
        ((1,), 1, "a", ""),
        ((), 2, "", ""),
    ],
)
def test_who_outlasts_the_others_goes_alone(
    minutes: tuple[float, ...], lanes: int, own: str, sharing: str
) -> None:
    jobs = [job(name, each) for name, each in zip("abcd", minutes, strict=False)]
    assert tuple(map(names, split(jobs, lanes))) == (own, sharing)


def test_what_is_measured_goes_alone() -> None:
    jobs = [job("a"), job("b", alone=True), job("c")]
    assert tuple(map(names, split(jobs, 2))) == ("b", "ac")


def test_each_says_all_it_has_to_say_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import sys, time\n"
        "print('table'); print('begins', file=sys.stderr, flush=True); time.sleep({});"
        "print('ends', sys.argv[1], file=sys.stderr)"
    )
    jobs = [job("a", 2, program=program.format(0.6)), job("b", 2, program=program.format(0.2))]
    assert run_all(jobs, lanes=2, goes_on=lambda status: status == 0) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.split()) == ("", ["begins", "ends", "1"] * 2)


def test_alone_it_has_every_core_and_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    one = job("a", program="import sys; print(sys.argv[1], file=sys.stderr)")
    assert run_all([one], lanes=3, goes_on=lambda status: status == 0) == 0
    assert capfd.readouterr().err == "3\n"


def test_after_a_failure_nothing_is_started(tmp_path: Path) -> None:
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')"
    jobs = [
        job("a", 9, program=f"{mark}; raise SystemExit(3)"),
        job("b", 9, program=f"import time; time.sleep(1); {mark}; raise SystemExit(1)"),
        job("c", 9, program=mark),
    ]
    assert run_all(jobs, lanes=2, goes_on=lambda status: status in (0, 1)) == 3
    assert (tmp_path / "ran").read_text() == "xx"
    assert run_all(jobs[1:], lanes=2, goes_on=lambda status: status in (0, 1)) == 1
    assert (tmp_path / "ran").read_text() == "xxxx"


def test_a_command_that_was_killed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    jobs = [job("a", program=program), job("b")]
    assert run_all(jobs, lanes=2, goes_on=lambda status: status in (0, 1)) == 1
    assert capsys.readouterr().err == "error: a was ended by signal 9\n"


def test_none_goes_on_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where what it says goes to a program that has ended."""
    later = f"import time; time.sleep(60); open({str(tmp_path / 'ran')!r}, 'w')"
    jobs = [job("a", program="import sys; print('x', file=sys.stderr)"), job("b", program=later)]
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        began_s = time.monotonic()
        with pytest.raises(OSError, match="No space left"):
            run_all(jobs, lanes=2, goes_on=lambda status: status == 0)
        assert time.monotonic() - began_s < 30
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
    assert not (tmp_path / "ran").exists()


PARENT = """
import signal, sys
from harness.lanes import Job, run_all
from harness.runs.ending import Terminated, terminate
signal.signal(signal.SIGTERM, terminate)
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
child = '''
import signal, sys, time
from harness.runs.ending import terminate
signal.signal(signal.SIGTERM, terminate)
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    open(sys.argv[2], "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    open(sys.argv[2] + ".ended", "w").close()
    print("last word", file=sys.stderr)
'''
jobs = [Job(n, lambda _, n=n: ["-c", child, n, sys.argv[1] + n], 1.0) for n in "ab"]
try:
    run_all(jobs, lanes=2, goes_on=bool)
except Terminated:
    sys.exit(7)
except KeyboardInterrupt:
    sys.exit(8)
"""


@pytest.mark.parametrize(("kind", "status"), [(signal.SIGTERM, 7), (signal.SIGINT, 8)])
def test_interrupted_all_end_with_their_last_word(
    tmp_path: Path, kind: signal.Signals, status: int
) -> None:
    words = [sys.executable, "-c", PARENT, str(tmp_path / "ready")]
    parent = subprocess.Popen(
        words, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    ready = [tmp_path / f"ready{name}" for name in "ab"]
    wait_for(ready, within_s=60)
    # A terminal signals all of them, `kill` one.
    if kind == signal.SIGINT:
        os.killpg(parent.pid, kind)
    else:
        parent.send_signal(kind)
    _, said = parent.communicate(timeout=60)
    assert (parent.returncode, said) == (status, "last word\n" * 2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_whose_parent_was_killed_ends(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PARENT, str(tmp_path / "ready")]
    parent = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    ready = [tmp_path / f"ready{name}" for name in "ab"]
    wait_for(ready, within_s=60)
    parent.kill()
    parent.wait()
    ended = [tmp_path / f"ready{name}.ended" for name in "ab"]
    wait_for(ended, within_s=30)
    assert all(path.exists() for path in ended)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_scenario_is_run_by_the_real_command(tmp_path: Path, elsewhere: bool) -> None:
    results = tmp_path if elsewhere else published.RESULTS
    made = scenario_job("routing variant=code", results, alone=True)
    command = [str(ROOT / "harness" / "run.py"), "+scenario=routing", "variant=code"]
    placed = [f"results='{tmp_path}'"] if elsewhere else []
    assert made.words_with(2) == [*command, *placed, "workers=2"]
    told = read_yaml(ROOT / "scenarios" / "scenario" / "routing.yaml")["expected_minutes"]
    assert (made.minutes, made.alone) == (told, True)
    assert scenario_job("no_such", results).minutes == 1.0
