"""Cells of a configuration, each composed when it is asked for: there may be 100,000 of them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config.hydra_words import literal, word
from harness.runs.building import cell_of
from harness.runs.cells import Cell
from harness.runs.config import KEYS, check, check_variant
from harness.runs.failures import Failure
from harness.runs.limits import resolved_limits
from harness.runs.matrix import Place, places

CHECKED = 500
"""Cells that are built before the first one runs."""
MOST_CHECKED = 2_000
"""Of a larger matrix, so many at most: those in which an axis has a value for the first time."""

Compose = Callable[[tuple[str, ...]], DictConfig]
"""The configuration with these choices of groups (`group=file`)."""


def as_plain(config: DictConfig) -> dict[str, Any]:
    """The configuration resolved and checked. Raises ValueError for what it may not say."""
    there = {str(key) for key in config}
    if missing := [key for key in KEYS[""] if key not in there]:
        raise ValueError(f"{missing[0]} is missing")
    check_variant(config.variant)
    plain = _plain_of(config)
    check(plain)
    return plain


def _plain_of(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, resolved. Raises OmegaConf's errors, as for missing ones."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _value_at(plain: Mapping[str, Any], key: str, *, otherwise: object) -> object:
    """What a plain configuration has at a dotted key."""
    *path, name = key.split(".")
    node: Any = plain
    for part in path:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node.get(name, otherwise) if isinstance(node, Mapping) else otherwise


def _but(mapping: Mapping[Any, Any], keys: Collection[str]) -> dict[str, Any]:
    return {str(key): value for key, value in mapping.items() if str(key) not in keys}


class Matrix:
    """The cells of a configuration and its variations.

    Variations are among its cells where the configuration has `variations: true`. `given` are the
    keys of the command line: such a key is no axis, and is not varied. `groups` are
    the groups and the file that was chosen of each; those that say where cells run are none of a
    cell's, `chosen_at` leaves them out. A place whose configuration has no such key as is to be
    varied, or has the value already, is no cell.
    """

    def __init__(
        self,
        config: DictConfig,
        *,
        compose: Compose,
        groups: Mapping[str, str],
        given: Collection[str],
    ) -> None:
        self._compose, self._groups = compose, groups
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._in_use: dict[tuple[str, ...], DictConfig] = {}
        plain = _plain_of(config)
        # The program of a paper's authors leaves nothing open.
        may_vary = plain["vary"] if plain["variations"] and plain["variant"] == "paper" else {}
        matrix, self._vary = (_but(it, given) for it in (plain["matrix"], may_vary))
        vary_at = [_but(pattern, given) for pattern in plain["vary_at"]]
        self.places = list(places(matrix, skip=plain["skip"], vary=self._vary, vary_at=vary_at))

    def config_at(self, place: Place) -> dict[str, Any] | None:
        """The configuration of a cell, resolved and checked; None where the place is no cell."""
        key, value = place.varied, place.setting.get(place.varied)
        if key:
            axes = _but(place.setting, {key})
            is_group = key in self._groups
            was = self._groups[key] if is_group else _value_at(self._at(axes), key, otherwise=value)
            if was == value:
                return None
        plain = resolved_limits(self._at(place.setting))
        check(plain)
        return plain

    def cell_at(self, place: Place) -> Cell | None:
        """The cell, built. Raises ValueError for what does not fit together."""
        plain = self.config_at(place)
        return cell_of(plain, place, self.chosen_at(place)) if plain is not None else None

    def chosen_at(self, place: Place) -> dict[str, str]:
        """The file that each group of a cell's configuration was taken from."""
        ours = {k: v for k, v in self._groups.items() if "hydra/" not in k and k != "cluster"}
        return {group: str(place.setting.get(group, value)) for group, value in ours.items()}

    def _at(self, setting: Mapping[str, object]) -> dict[str, Any]:
        """The configuration with a value on every axis, resolved."""
        picks = tuple(word(axis, it) for axis, it in setting.items() if axis in self._groups)
        axes = _but(setting, self._groups)
        if picks not in self._composed:
            self._composed[picks] = _one_cell(self._compose(picks))
        # To copy a configuration takes longer than to resolve it: cells of the same axes share one.
        shared = (*picks, *axes)
        config = self._in_use.get(shared)
        if config is None or any(isinstance(value, Mapping) for value in axes.values()):
            config = self._in_use[shared] = self._composed[picks].copy()
        for axis, value in axes.items():
            OmegaConf.update(config, axis, literal(value), force_add=False)
        check_variant(config.variant)
        return _plain_of(config)

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
                if (key, key, str(value)) not in seen:
                    raise ValueError(
                        f"vary.{key}: every cell has {value} already, or none has such a key"
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


def _one_cell(config: DictConfig) -> DictConfig:
    """Without what says which cells there are: that need not be copied for each of them."""
    for key in ("matrix", "vary", "compare"):
        config[key] = {}
    for key in ("skip", "vary_at"):
        config[key] = []
    return config
