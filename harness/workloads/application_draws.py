"""Kinds and deadlines of applications as a program outside this project draws them."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np

from harness.workloads.applications import ApplicationKind, UnitCalls
from harness.workloads.settings import require_between, require_keys, require_positive
from harness.workloads.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class KindDraw:
    """Kinds and deadline scales as a program in Python draws them from one seed."""

    seed: int
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, mix: Mapping[str, float]) -> "KindDraw | None":
        """Of a scenario; None where it has none. ValueError for kinds that `mix` does not have."""
        if given is None:
            return None
        require_keys("workload.kind_draw", given, ("seed", "order"))
        seed, names = given["seed"], given["order"]
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ValueError(f"workload.kind_draw.seed={seed} is no whole number")
        if not isinstance(names, Sequence) or isinstance(names, str):
            raise ValueError(f"workload.kind_draw.order={names} is no list of kinds")
        order, weighted = tuple(map(str, names)), {name for name, weight in mix.items() if weight}
        if sorted(order) != sorted(weighted):
            raise ValueError(
                f"workload.kind_draw.order={', '.join(order)} and the kinds of workload.mix with a "
                f"weight, {', '.join(sorted(weighted))}, are not the same"
            )
        return cls(seed, order, tuple(float(mix[name]) for name in order))

    def drawn(
        self, kinds: Sequence[str], count: int, scales: Sequence[float]
    ) -> tuple[Ints, Floats]:
        """Of each of `count` applications its place among `kinds`, and its scale or NaN."""
        source, kind, scale = random.Random(self.seed), [], []
        for _ in range(count):
            kind.append(kinds.index(source.choices(self.names, self.weights)[0]))
            source.random()  # whether it has a deadline: all have one, or none
            scale.append(source.choices(scales)[0] if scales else np.nan)
        return np.array(kind), np.array(scale)


@dataclass(frozen=True, slots=True)
class DeadlineService:
    """Seconds that deadlines are multiples of, from the longest known run of a kind.

    A token of a prompt and of an answer count as so many seconds each; `share` (0..1) of the sum,
    over the number of `divided_by` for the kind, 1 where it has none.
    """

    prompt_token_s: float
    output_token_s: float
    share: float
    divided_by: Mapping[str, float]

    @classmethod
    def of(
        cls, given: Mapping[str, Any] | None, kinds: Collection[str], scales: Sequence[float]
    ) -> "DeadlineService | None":
        """Of a scenario; None where it has none. ValueError for what no seconds follow from."""
        if given is None:
            return None
        where = "workload.deadline_service"
        if not scales:
            raise ValueError(f"{where} needs workload.deadline_scales, which is []")
        require_keys(where, given, [field.name for field in fields(cls)])
        divided_by = given["divided_by"]
        if not isinstance(divided_by, Mapping):
            raise ValueError(f"{where}.divided_by={divided_by} has no numbers by kind")
        if unknown := sorted(set(divided_by) - set(kinds)):
            raise ValueError(
                f"{where}.divided_by has {unknown[0]}, which is not in workload.mix: "
                f"{', '.join(kinds)}"
            )
        numbers = {name: value for name, value in given.items() if name != "divided_by"}
        for name, value in {**numbers, **divided_by}.items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ValueError(f"{where}: {name}={value} is no number")
        require_between(where, 0, 1e9, **numbers)
        require_positive(f"{where}.divided_by", **divided_by)
        return cls(**given)

    def seconds(self, kind: ApplicationKind) -> float:
        """Of a kind."""
        longest_s = max(sum(map(self._unit_s, chain(*run))) for run in kind.past())
        return self.share * longest_s / self.divided_by.get(kind.name, 1.0)

    def _unit_s(self, unit: UnitCalls) -> float:
        tokens_s = sum(unit.prompt_tokens) * self.prompt_token_s
        return tokens_s + sum(unit.output_tokens) * self.output_token_s + sum(unit.external_s)
