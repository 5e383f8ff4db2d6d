"""How far every figure moves with the error of the cost profiles.

A draw multiplies all iterations of a service, prefill and decode apart, by one factor each: a
systematic error, log-normal, whose median size is the median error of that profile (or roofline)
on rows its fit had not seen. Errors that change from iteration to iteration average out.
"""

from collections.abc import Callable
from zlib import crc32

import numpy as np

from harness.costs.model import ProfileCosts
from harness.costs.scaled import ScaledCosts

_MEDIAN_OF_NORMAL = 0.6744897501960817  # of |z| for a standard normal z


class DrawnCosts(ScaledCosts):
    """Costs as they may be: `draw`, 1 and up, numbers the possibility of a `seed`.

    The same two numbers give the same costs; other seeds are independent draws. Loads, KV
    blocks and what taking a request in takes are not drawn.
    """

    def __init__(self, costs: ProfileCosts, draw: int, seed: int) -> None:
        super().__init__(costs)
        self._draw, self._seed = draw, seed

    def __reduce__(self) -> tuple[Callable[..., "DrawnCosts"], tuple[object, ...]]:
        return DrawnCosts, (self._costs, self._draw, self._seed)

    def factors(self, service: str, tensor_parallel: int) -> tuple[float, float]:
        """What prefill and decode seconds are multiplied by."""
        error = self._costs.error(service, tensor_parallel)
        key = [self._draw, self._seed, crc32(service.encode()), tensor_parallel]
        rng = np.random.default_rng(key)
        prefill, decode = (
            float(np.exp(error.get(f"{phase}_median", 0.0) / _MEDIAN_OF_NORMAL * z))
            for phase, z in zip(("prefill", "decode"), rng.standard_normal(2), strict=True)
        )
        return prefill, decode
