"""The order of the tests, and their last words: what was skipped, and which processes are left."""

import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.tests.support.processes import end_left, mark_suite

MARK, LEFT = pytest.StashKey[str](), pytest.StashKey[list[str]]()
FILE = pytest.StashKey[Path]()
ENGINE = "vLLM is not installed"


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a docker daemon of this process; skips where there can be none."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # of all workers
    with ExitStack() as stack:
        try:
            from harness.tests.support.docker_daemon import NoDaemonError, daemon, unpacked

            address = stack.enter_context(daemon(unpacked(place / "docker")))
        except NoDaemonError as error:
            pytest.skip(str(error))
        yield address


def pytest_configure(config: pytest.Config) -> None:
    """Mark what is started from here on, workers of this session among it."""
    if not hasattr(config, "workerinput"):
        config.stash[MARK] = mark_suite()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first, those of the real engine before the others, for every process of a session.

    A process begins at the front of a share of its own; what has nothing left takes tests from the
    end of another's. Slow tests of a file share what they load, and stay together.
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    quick = [item for item in items if not _is(item, "slow")]
    files: dict[tuple[bool, Path], list[pytest.Item]] = {}
    for item in items:
        if _is(item, "slow"):
            files.setdefault((not _is(item, "vllm"), item.path), []).append(item)
    dealt = [files[key] for key in sorted(files)]
    ordered: list[pytest.Item] = []
    for at in range(count):
        ends = len(ordered) + (len(items) - len(ordered)) // (count - at)
        ordered += [item for one in dealt[at::count] for item in one]
        room = max(0, ends - len(ordered))
        ordered += quick[:room]
        del quick[:room]
    items[:] = [*ordered, *quick]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop engines that tests of another file have kept: the process groups are all engines'.

    They end with any engine of vLLM that is shut down as a whole.
    """
    support = sys.modules.get("harness.tests.support.real_engine")
    if support is not None and item.config.stash.get(FILE, None) != item.path:
        support.stop_kept()
    item.config.stash[FILE] = item.path


def _is(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


def reasons(reports: list[Any]) -> Counter[str]:
    """Why tests were skipped, each report once however many processes made it."""
    said = {
        report.nodeid: str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in reports
        if isinstance(report.longrepr, tuple)
    }
    return Counter(said.values())


def sentence(skipped: Counter[str]) -> str:
    """One line."""
    parts = [f"{count} because {why}" for why, count in skipped.most_common()]
    return f"skipped (tests or whole files): {'; '.join(parts) or 'none'}"


def missing(skipped: Counter[str]) -> bool:
    """Whether a machine where everything can be installed ran no test of the real engine."""
    return os.environ.get("CI") == "true" and any(ENGINE in why for why in skipped)


def _skipped(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reasons(reporter.stats.get("skipped", [])) if reporter else Counter()


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    """After all other summaries."""
    yield
    skipped = _skipped(terminalreporter.config)
    terminalreporter.write_line(sentence(skipped))
    if missing(skipped):
        terminalreporter.write_line("failed: with CI=true the tests of vLLM must run")
    for process in terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.write_line(f"failed: a test has left process {process}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a process is left, its workers having ended, or the real engine was not tested."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    config.stash[LEFT] = end_left(config.stash[MARK])
    if config.stash[LEFT] or missing(_skipped(config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
