"""A Ray cluster that asks for a token, as the plain command starts it where its user has one."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness.engines.ray_session import joined_ray
from harness.engines.ray_token import use_token

pytestmark = pytest.mark.slow

RAY = Path(sys.executable).with_name("ray")
GOOD, WRONG = "0123456789abcdef" * 2, "fedcba9876543210" * 2
JOIN = """
import sys
from harness.engines.ray_session import joined_ray
with joined_ray(sys.argv[1], {}):
    import ray
    print(ray.get(ray.remote(lambda: 1 + 1).remote()))
"""


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
        env=environment | {"HOME": str(home), "PYTHONUNBUFFERED": "1"},
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


REFUSED: Mapping[str, dict[str, str]] = {
    "the cluster asks for a token: give it in RAY_AUTH_TOKEN, in a file that": {},
    "the cluster does not take the token of RAY_AUTH_TOKEN": {"TOKEN": WRONG},
    "the cluster asks for a token, and RAY_AUTH_MODE is disabled": {
        "MODE": "disabled",
        "TOKEN": GOOD,
    },
    "RAY_AUTH_TOKEN_PATH=/no/file is no file with a token": {"TOKEN_PATH": "/no/file"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_token_that_is_missing_or_wrong_is_one_sentence(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    said: str,
) -> None:
    given(tmp_path, monkeypatch, **REFUSED[said])
    with pytest.raises(ValueError, match=said), joined_ray(address, {}):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("source", ["file", "TOKEN", "TOKEN_PATH"])
def test_a_cluster_is_joined_with_the_token_of_its_user(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.write_text(WRONG if source != "file" else GOOD)
    (tmp_path / "token").write_text(GOOD)
    named = {
        "file": {},
        "TOKEN": {"TOKEN": GOOD},
        "TOKEN_PATH": {"TOKEN_PATH": f"{tmp_path}/token"},
    }
    given(tmp_path, monkeypatch, **named[source])
    if source == "file":
        done = subprocess.run(
            [sys.executable, "-c", JOIN, address], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr
    else:
        use_token(address)
        assert os.environ["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("address", ["auto", "ray://127.0.0.1:1", "local"])
def test_addresses_of_other_forms_are_left_to_ray(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(tmp_path, monkeypatch)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    use_token(address)
    assert "RAY_AUTH_MODE" not in os.environ
