import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.costs.nvml import Sampler, busy_spans, gpu_name


def test_samples_become_stretches_by_hand() -> None:
    """A sample speaks for the time since the one before it."""
    rows = [(0.0, 0, 9), (1.0, 50, 0), (2.0, 10, 0), (3.0, 0, 0), (4.0, 80, 0)]
    assert busy_spans(rows, 1).tolist() == [[0.0, 2.0], [3.0, 4.0]]
    assert busy_spans(rows, 2).shape == (0, 2)


class Driver:
    """Two GPUs; the second computes all the time."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        return 2

    def nvmlDeviceGetHandleByIndex(self, gpu: int) -> int:  # noqa: N802
        return gpu

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"A GPU"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=100 * handle)


def test_a_sampler_sees_who_computes() -> None:
    sampler = Sampler(Driver(), (0, 1), time.monotonic)
    sampler.start()
    while len(sampler.rows) < 3:
        time.sleep(0.01)
    spans = sampler.stop()
    assert spans[0].shape == (0, 2)
    assert len(spans[1]) == 1
    assert np.diff(spans[1])[0, 0] > 0


def test_no_library_and_no_gpu_have_no_name() -> None:
    assert gpu_name(None) is None
    assert gpu_name(SimpleNamespace(nvmlDeviceGetCount=lambda: 0)) is None
    assert gpu_name(Driver()) == "A GPU"
