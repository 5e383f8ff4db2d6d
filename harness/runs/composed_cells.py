"""Cells of a configuration, each composed when it is asked for: there may be 100,000 of them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.config.names import unknown_name
from harness.runs.building import cell_of
from harness.runs.cells import Cell
from harness.runs.composing import Composer
from harness.runs.config import RunConfig
from harness.runs.failures import Failure
from harness.runs.limits import resolved_limits
from harness.runs.matrix import CASES, Place, places

DRAWS = "hardware.cost_draw"
"""The axis of draws of costs."""

CHECKED = 500
"""Cells that are built before the first one runs."""
MOST_CHECKED = 2_000
"""Of a larger matrix, so many at most: those in which an axis has a value for the first time."""


def _but(mapping: Mapping[Any, Any], keys: Collection[str]) -> dict[str, Any]:
    return {str(key): value for key, value in mapping.items() if str(key) not in keys}


def _chosen(places: Iterator[Place], where: Mapping[str, object]) -> list[Place]:
    """The places with these values of axes. ValueError where there is none."""
    kept = [*places]
    for axis, it in where.items():
        there = {str(place.setting[axis]): None for place in kept if axis in place.setting}
        if not there:
            known = {name: None for place in kept for name in place.setting}
            raise ValueError(unknown_name("axis of these cells", axis, known))
        # A value may be a list itself.
        wanted = [it, *it] if isinstance(it, Sequence) and not isinstance(it, str) else [it]
        kept = [place for place in kept if axis in place.setting and place.setting[axis] in wanted]
        if not kept:
            raise ValueError(f"no cell has {axis}={it}; there are {', '.join(there)}")
    return kept


class Matrix:
    """The cells that a command line stands for, and their variations.

    Variations are among its cells where the configuration has `variations: true`. A key of the
    command line is no axis, and is not varied. A place whose configuration has no such key as is to
    be varied, or has the value already, is no cell. With `uncertainty_draws` every cell has further
    ones, on draws of its costs. `where` has values of axes, one or several of each: other cells are
    left out, and the matrix is not whole. Raises ValueError where that leaves none.
    """

    def __init__(self, composer: Composer, where: Mapping[str, object] | None = None) -> None:
        self.composer, self.config = composer, composer.whole()
        given, config = composer.given, self.config
        # The program of a paper's authors leaves nothing open.
        may_vary = config.vary if config.variations and config.variant == "paper" else {}
        matrix, self._vary = (_but(it, given) for it in (config.matrix, may_vary))
        if CASES in matrix:
            matrix[CASES] = [_but(case, given) for case in matrix[CASES]]
        not_varied = config.vary.keys() - self._vary.keys()
        patterns = [pattern for pattern in config.vary_at if not pattern.keys() & not_varied]
        vary_at = [_but(pattern, given) for pattern in patterns]
        if config.uncertainty_draws:
            matrix[DRAWS] = list(range(config.uncertainty_draws + 1))
        self.is_whole = not where
        self.places = _chosen(places(matrix, vary=self._vary, vary_at=vary_at), where or {})

    def config_at(self, place: Place) -> RunConfig | None:
        """The configuration of a cell, limits resolved; None where the place is no cell."""
        key, value = place.varied, place.setting.get(place.varied)
        if key:
            was = self.composer.value_at(_but(place.setting, {key}), key, otherwise=value)
            if was == value:
                return None
        return resolved_limits(self.composer.cell(place.setting))

    def cell_at(self, place: Place) -> Cell | None:
        """The cell, built. Raises ValueError for what does not fit together."""
        config = self.config_at(place)
        return cell_of(config, place) if config is not None else None

    def checked(self, tick: Callable[[], None]) -> dict[int, Cell | None]:
        """The cells that are built before any runs, by their place.

        They are the first, and of the others those in which an axis has a value for the first time.
        `tick` is called at every one.

        Raises the error of one that cannot be built, and ValueError where a key cannot be varied.
        """
        built: dict[int, Cell | None] = {}
        seen: set[tuple[str, str, str]] = set()
        for number, place in enumerate(self.places):
            news = {(place.varied, key, str(value)) for key, value in place.setting.items()} - seen
            # A variation must be found somewhere, else its key is wrong.
            wanted = len(built) < MOST_CHECKED or any(key == place.varied for _, key, _ in news)
            if number < CHECKED or (news and wanted):
                tick()
                built[number] = self.cell_at(place)
                if built[number] is not None:
                    seen |= news
        for key, values in self._vary.items():
            for value in values:
                if self.is_whole and (key, key, str(value)) not in seen:
                    raise ValueError(
                        f"vary.{key}: every cell has {value} already, or none has such a key, "
                        "or vary_at names none"
                    )
        return built

    def cells(self, built: dict[int, Cell | None]) -> Iterator[tuple[Place, Cell | Failure | None]]:
        """Every place and its cell; the ones that are `built` are taken out of there.

        A Failure where it cannot be built, None where there is none.
        """
        for number, place in enumerate(self.places):
            yield place, built.pop(number) if number in built else self._tried(place)

    def _tried(self, place: Place) -> Cell | Failure | None:
        try:
            return self.cell_at(place)
        except Exception as error:  # of any kind, as when a cell runs
            return Failure.of(error)
