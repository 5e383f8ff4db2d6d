"""Which of several policies wins in a setting, by figure: the inquiry and the rule of a win.

A policy wins a setting in a figure where it is better than each of the others by at least `GAIN`
and beyond noise: the 95% interval over paired seeds is above no gain. At most one of them does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.claims.effects import Cells, Effect, ratio, reduction
from harness.claims.paper import Claim
from harness.claims.verdicts import NEAR, verdict_of
from harness.conditions.space import Space, space_of
from harness.runs.figures import header_of, is_more_better

GAIN = 0.02
"""What a winner is better by, at least, as a share of each other policy's figure."""


def claimed(figure: str) -> float:
    """The number of a claim that comes out, at two thirds of it, from a gain of `GAIN` on."""
    return GAIN / NEAR[0] + (1.0 if is_more_better(figure) else 0.0)


def least_gain(cells: Cells, figure: str, policy: str, rivals: Sequence[str]) -> Effect:
    """What a policy gains over the rival that leaves least.

    That is one over which the gain is within noise, if there is any, and of several such, or of all
    where there is none, the one with the smallest gain.
    """
    gain = ratio if is_more_better(figure) else reduction
    effects = [gain(cells, figure, of={"policy": policy}, over={"policy": it}) for it in rivals]

    def left(effect: Effect) -> tuple[bool, float]:
        found = verdict_of(effect, claimed(figure))
        return bool(found.share_low > 0), found.share

    return min(effects, key=left)


def claim_id(policy: str, figure: str) -> str:
    """The claim that a policy wins in a figure."""
    return f"{policy}.{figure}"


@dataclass(frozen=True, slots=True)
class OfWinners:
    """The claims that each of `policies` wins in each of `figures`, in the space of `content`."""

    policies: tuple[str, ...]
    figures: tuple[str, ...]
    content: Mapping[str, Any]

    @property
    def space(self) -> Space:
        """As `Inquiry`."""
        return space_of("winners", self.content)

    @property
    def claims(self) -> Mapping[str, Claim]:
        """As `Inquiry`."""
        found = [self._claim(policy, figure) for figure in self.figures for policy in self.policies]
        return {one.id: one for one in found}

    def _claim(self, policy: str, figure: str) -> Claim:
        rivals = [name for name in self.policies if name != policy]
        return Claim(
            id=claim_id(policy, figure),
            figure=figure,
            where="",
            says=f"{policy} has a better {header_of(figure)} than each of {', '.join(rivals)}",
            quote="",
            paper=claimed(figure),
            unit="x" if is_more_better(figure) else "%",
            effect=partial(least_gain, figure=figure, policy=policy, rivals=rivals),
        )
