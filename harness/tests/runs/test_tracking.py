"""The Weights & Biases mirror, offline for certain."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from harness.config.paths import ROOT
from harness.runs import tracking
from harness.tests.support.processes import HANGS_S

ROWS = pd.DataFrame({"config.seed": [0, 1], "s": [1.5, None]}, index=["r0", "r1"])

MIRROR = """
import sys
from pathlib import Path
import pandas as pd
from harness.runs.tracking import log_scenario
rows = {"config.seed": [0, 1], "config.name": ["n", "n"], "end_to_end_s": [None, 2.5]}
log_scenario("toy", pd.DataFrame(rows, index=["r0", "r1"]), folder=Path(sys.argv[1]))
"""


def refuse(server: socket.socket, seen: list[int]) -> None:
    """Count and drop every connection until the socket is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        seen.append(1)
        connection.close()


@pytest.mark.slow
def test_mirrors_offline_without_a_connection(tmp_path: Path) -> None:
    seen: list[int] = []
    home = tmp_path / "home"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=refuse, args=(server, seen), daemon=True).start()
        trap = f"http://127.0.0.1:{server.getsockname()[1]}"
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), trap)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", MIRROR, str(tmp_path)],
            cwd=ROOT,
            env=clean | proxies | {"HOME": str(home), "NO_PROXY": "localhost"},
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert seen == []
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    (table,) = run.glob("files/media/table/*.json")
    assert '[["r0",0,null],["r1",1,2.5]]' in table.read_text()


def test_a_failing_mirror_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ERROR_REPORTING"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.warns(UserWarning, match="^toy is not mirrored to Weights & Biases: .*wandb.*$"):
        tracking.log_scenario("toy", ROWS, folder=tmp_path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "set"}, "online"),
        ({"WANDB_API_KEY": "set", "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_offline_unless_the_user_says_otherwise(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tracking.wandb_mode() == expected
