"""Cells on a Ray cluster that asks for a token, as the plain command starts it on this machine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness import run
from harness.config.paths import ROOT
from harness.config.trust import TRUSTED_PACKAGES
from harness.engines import ray_token
from harness.engines.ray_session import joined_ray
from harness.engines.ray_token import use_token
from harness.runs import cluster
from harness.runs.failures import Failure
from harness.tests.support.command import SMALL, command, runs_below
from harness.tests.support.configured import cells_of, composed

pytestmark = pytest.mark.slow

RAY = Path(sys.executable).with_name("ray")
GOOD, WRONG = "0123456789abcdef" * 2, "fedcba9876543210" * 2
POLICY = '''
from baselines.fcfs import Fcfs
from somebodys_policies.told import TOLD


class Theirs(Fcfs):
    """First come first served, under another name."""

    told = TOLD
'''
"""A policy from outside the tree, in a package of two modules."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of one core, started by a user who has a token; its processes end with the command."""
    if not RAY.is_file():
        pytest.skip("Ray is not installed here")
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(GOOD)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Sockets of Ray may have 107 letters in their paths.
    place = Path(tmp_path_factory.mktemp("r")).relative_to("/")
    words = [f"--port={port}", "--num-cpus=1", "--include-dashboard=false", "--block"]
    words += ["--node-ip-address=127.0.0.1", f"--temp-dir=/{place}", "--disable-usage-stats"]
    environment = {name: it for name, it in os.environ.items() if not name.startswith("RAY_")}
    head = subprocess.Popen(
        [str(RAY), "start", "--head", *words],
        # At Ray's own niceness its workers wait for whatever else this machine does.
        env=environment | {"HOME": str(home), "PYTHONUNBUFFERED": "1", "RAY_worker_niceness": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert head.stdout is not None
        said = []
        for line in head.stdout:
            said.append(line)
            if "--block" in line:
                break
        assert "Token authentication is enabled" in "".join(said)
        yield f"127.0.0.1:{port}"
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)


def given(home: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """A user of this home folder and no other token than those that are named."""
    for name in ("MODE", "TOKEN", "TOKEN_PATH"):
        # Set first, so that what a test sets itself is undone behind it.
        monkeypatch.setenv(f"RAY_AUTH_{name}", "")
        monkeypatch.delenv(f"RAY_AUTH_{name}")
    monkeypatch.setenv("HOME", str(home))
    for name, value in environment.items():
        monkeypatch.setenv(f"RAY_AUTH_{name}", value)


def test_a_cluster_gives_what_one_core_gives(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the program, and a policy of another package of a user who has the token."""
    lab, home = tmp_path / "lab", tmp_path / "home"
    package = lab / "somebodys_policies"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "told.py").write_text("TOLD = 1\n")
    (package / "theirs.py").write_text(POLICY)
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(GOOD)
    monkeypatch.setenv(TRUSTED_PACKAGES, package.name)
    words = [*SMALL, "+matrix.seed=[0,1]", "policy._target_=somebodys_policies.theirs.Theirs"]
    one, many = tmp_path / "one", tmp_path / "many"
    with monkeypatch.context() as patch:
        given(home, patch)
        patch.setenv("PYTHONPATH", f"{ROOT}:{lab}")
        joins = ["cluster=ray", f"cluster.address={address}", f"results={many}"]
        done = command(*words, *joins, folder=lab)
        assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(str(lab))
    with composed(*words, "workers=1", "tracking=none", f"results={one}") as config:
        assert run.run(config) == 0
    assert len(runs_below(many)) == 2
    assert runs_below(one).keys() == runs_below(many).keys()
    for name in runs_below(one):
        for table in ("config.yaml", "requests.parquet", "gpu.parquet"):
            assert (one / name / table).read_bytes() == (many / name / table).read_bytes()


def test_what_a_node_lacks_is_named() -> None:
    """A file; and what no node has is not waited for."""
    cell, *_ = cells_of(*SMALL)
    unread = replace(cell, named=replace(cell.named, files={"/no/prompts.jsonl": "0" * 64}))
    failed = cluster._attempt_here(unread, ())
    assert isinstance(failed, Failure)
    where = socket.gethostname()
    assert failed.sentence == f"/no/prompts.jsonl is not on {where}; every node needs it there"
    ray = Mock(nodes=lambda: [{"Resources": {"CPU": 8.0, "GPU": 2.0}, "Alive": True}])
    for slots, lacks in ((Mock(cpus=None, gpus=4), "4 GPUs"), (Mock(cpus=9, gpus=0), "9 CPUs")):
        lacking = Mock(engine=Mock(slots=slots))
        with pytest.raises(ValueError, match=f"^no node of the cluster has {lacks}$"):
            cluster._slots(ray, lacking)


def test_an_address_where_nobody_answers_is_refused_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with (
        pytest.raises(ValueError, match=f"^cluster.address={address}: no Ray cluster answers: "),
        joined_ray(address, {}),
    ):
        pass
    assert "RAY_ADDRESS" not in os.environ


@pytest.mark.parametrize(
    ("said", "token"),
    [
        ("the cluster asks for a token: give it in RAY_AUTH_TOKEN, in a file that", {}),
        ("the cluster does not take the token of RAY_AUTH_TOKEN", {"TOKEN": WRONG}),
    ],
)
def test_a_token_that_is_missing_or_wrong_is_one_sentence(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    said: str,
    token: dict[str, str],
) -> None:
    given(tmp_path, monkeypatch, **token)
    with pytest.raises(ValueError, match=said), joined_ray(address, {}):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ({"TOKEN": GOOD}, ""),
        ({"TOKEN_PATH": "token"}, ""),
        ({"MODE": "disabled"}, "the cluster asks for a token, and RAY_AUTH_MODE is disabled"),
        ({"TOKEN_PATH": "/no/file"}, "RAY_AUTH_TOKEN_PATH=/no/file is no file with a token"),
    ],
)
def test_a_token_is_taken_from_where_ray_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(GOOD)
    monkeypatch.setattr(ray_token, "_answers", lambda address: ["refuses disabled"])
    given(tmp_path, monkeypatch, **token)
    if said:
        with pytest.raises(ValueError, match=said):
            use_token("127.0.0.1:1")
    else:
        use_token("127.0.0.1:1")
        assert os.environ["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("address", ["auto", "ray://127.0.0.1:1", "local"])
def test_addresses_of_other_forms_are_left_to_ray(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(tmp_path, monkeypatch)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    use_token(address)
    assert "RAY_AUTH_MODE" not in os.environ
