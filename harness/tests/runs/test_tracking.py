"""The Weights & Biases mirror, offline for certain."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from harness.paths import ROOT
from harness.runs import tracking

ROWS = pd.DataFrame(
    {"config.seed": [0, 1], "config.engine": ["a", "a"], "gpus": [[1, 2], None], "s": [1.5, None]},
    index=["r0", "r1"],
)

MIRROR = """
import sys
from pathlib import Path
import pandas as pd
from harness.runs.tracking import log_scenario
rows = pd.DataFrame({"config.seed": [0, 1], "end_to_end_s": [1.5, 2.5]}, index=["r0", "r1"])
folder = Path(sys.argv[1])
figure = folder / "figure.png"
figure.write_bytes(b"a figure")
log_scenario("wandb", scenario="toy", rows=rows, figures=[figure], folder=folder)
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
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", MIRROR, str(tmp_path)],
            cwd=ROOT,
            env=clean | proxies | {"HOME": str(home), "NO_PROXY": "localhost"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        took_s = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert seen == []
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    (table,) = run.glob("files/media/table/*.json")
    assert '["r1",1,2.5]' in table.read_text()
    staged = [f for f in tmp_path.glob("wandb/**/staging/*") if f.read_bytes() == b"a figure"]
    assert len(staged) == 1
    assert took_s < 15


def test_none_touches_nothing(tmp_path: Path) -> None:
    tracking.log_scenario("none", scenario="toy", rows=ROWS, figures=[], folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of wandb, none, not mlflow"):
        tracking.log_scenario("mlflow", scenario="toy", rows=ROWS, figures=[], folder=tmp_path)


def test_a_failing_mirror_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ERROR_REPORTING"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.warns(UserWarning, match="^toy is not mirrored to Weights & Biases: .*wandb.*$"):
        tracking.log_scenario("wandb", scenario="toy", rows=ROWS, figures=[], folder=tmp_path)


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


def test_cells_are_what_a_table_can_hold() -> None:
    assert tracking._cells(ROWS) == [["r0", 0, "a", "[1, 2]", 1.5], ["r1", 1, "a", None, None]]


def test_only_what_all_rows_share_is_configuration() -> None:
    assert tracking._shared(ROWS) == {"config.engine": "a"}
