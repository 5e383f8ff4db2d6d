"""Lengths that differ from others by two factors: the spread of answers and the size of prompts."""

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from harness.workloads.lengths import Drawn, Floats, Generator, Ints, Lengths
from harness.workloads.settings import require_positive

SAMPLES = 8192
"""Answers that the two constants are fitted to."""


class Reshaped:
    """Other lengths with every answer of l tokens made c l^a and every prompt `prompt_times` it.

    Answers have the same mean and `spread_times` the coefficient of variation, within 1 and
    `longest_output_tokens`; in their order they stay as they are.
    """

    def __init__(
        self,
        *,
        lengths: Lengths,
        spread_times: float,
        prompt_times: float,
        longest_output_tokens: int,
    ) -> None:
        """1 leaves lengths alone. ValueError for a spread that answers so long cannot have."""
        require_positive(
            "workload.lengths",
            spread_times=spread_times,
            prompt_times=prompt_times,
            longest_output_tokens=longest_output_tokens,
        )
        self._lengths, self._prompt_times = lengths, prompt_times
        self._longest, self._power = longest_output_tokens, (1.0, 1.0)
        if spread_times != 1:
            rngs = (np.random.default_rng([6, part]) for part in (1, 2))
            sample = lengths.draw(SAMPLES, *rngs).output_tokens
            self._power = _power(sample.tobytes(), spread_times, longest_output_tokens)
        self.files = lengths.files

    def draw(self, count: int, prompts: Generator, outputs: Generator) -> Drawn:
        """As `Lengths`."""
        drawn = self._lengths.draw(count, prompts, outputs)
        power, factor = self._power
        answers = _shaped(drawn.output_tokens, power, factor, self._longest)
        whole = np.maximum(np.rint(self._prompt_times * drawn.prompt_tokens), 1)
        return Drawn(whole.astype(np.int64), np.rint(answers).astype(np.int64))


def _shaped(tokens: Ints, power: float, factor: float, longest: int) -> Floats:
    return np.clip(factor * tokens.astype(np.float64) ** power, 1, longest)


@lru_cache(maxsize=1024)
def _power(sample: bytes, times: float, longest: int) -> tuple[float, float]:
    """The exponent and the factor. ValueError where no exponent gives so much spread."""
    tokens = np.frombuffer(sample, np.int64)
    mean, wanted = tokens.mean(), times * tokens.std() / tokens.mean()

    def factor_of(power: float) -> float:
        off = lambda log: _shaped(tokens, power, math.exp(log), longest).mean() - mean  # noqa: E731
        return math.exp(brentq(off, -40.0, 40.0, xtol=1e-10))

    def excess(power: float) -> float:
        found = _shaped(tokens, power, factor_of(power), longest)
        return float(found.std() / found.mean() - wanted)

    if excess(0.02) > 0 or excess(6.0) < 0:
        raise ValueError(
            f"workload.lengths.spread_times is {times:g}: answers of 1 to {longest} tokens with "
            f"the mean {mean:.0f} cannot have it"
        )
    power = brentq(excess, 0.02, 6.0, xtol=1e-5)
    return power, factor_of(power)
