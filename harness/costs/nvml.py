"""When GPUs compute, as their driver says: samples of NVML, turned into busy intervals."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERIOD_S = 0.05


def open_nvml() -> Any | None:
    """The library, initialised; None where there is none or it finds no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu_name(nvml: Any) -> str | None:
    """Name of the first GPU; None where there is none."""
    if nvml is None or nvml.nvmlDeviceGetCount() == 0:
        return None
    name = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))
    return name.decode() if isinstance(name, bytes) else str(name)


def gpu_memory_bytes(nvml: Any) -> int:
    """Memory of the first GPU."""
    return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).total)


@dataclass(slots=True)
class Sampler:
    """Reads the utilisation of GPUs every `PERIOD_S` seconds of `clock` until stopped."""

    nvml: Any
    gpus: Sequence[int]
    clock: Callable[[], float]
    rows: list[tuple[float, ...]] = field(default_factory=list)
    _ends: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to sample."""
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        handles = [self.nvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in self.gpus]
        while not self._ends.is_set():
            used = [self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
            self.rows.append((self.clock(), *used))
            time.sleep(PERIOD_S)

    def stop(self) -> dict[int, Floats]:
        """End; (start, end) rows per GPU in which it was busy, empty where it never was."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        return {gpu: busy_spans(self.rows, 1 + i) for i, gpu in enumerate(self.gpus)}


def busy_spans(rows: Sequence[tuple[float, ...]], column: int) -> Floats:
    """Stretches of samples above zero; a sample speaks for the time since the one before it."""
    spans: list[list[float]] = []
    for before, now in pairwise(rows):
        if now[column] <= 0:
            continue
        if spans and spans[-1][1] == before[0]:
            spans[-1][1] = now[0]
        else:
            spans.append([before[0], now[0]])
    return np.array(spans, np.float64).reshape(-1, 2)
