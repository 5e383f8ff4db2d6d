"""The loads of benchmarks are what their figures say."""

import json

import numpy as np
import pytest

from harness.benchmarks.forecasts import REQUESTS, SERVICES, history
from harness.benchmarks.long_trace import main, trace
from harness.benchmarks.reference_load import OUTPUT_TOKENS, PROMPT_TOKENS


def test_a_trace_has_the_means_of_the_reference_load() -> None:
    load = trace(10_000, np.zeros(10_000))
    assert load.prompt_tokens.mean() == pytest.approx(PROMPT_TOKENS, rel=0.02)
    assert load.output_tokens.mean() == pytest.approx(OUTPUT_TOKENS, rel=0.02)


def test_a_part_of_a_trace_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests", "50"]) == 0
    seconds, peak_bytes = json.loads(capsys.readouterr().out)
    assert seconds > 0
    assert peak_bytes > 10**6


def test_a_trace_without_requests_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--requests", "0"])
    assert "--requests is 0, it must be 1 or more" in capsys.readouterr().err


def test_a_history_is_that_of_many_services() -> None:
    windows = history()
    assert len(windows) == SERVICES
    assert sum(map(len, windows)) == REQUESTS
    assert len(windows[0]) > 4 * len(windows[-1])
