"""A large matrix is composed while it runs."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from harness.runs import composed_cells
from harness.runs.cells import Cell
from harness.runs.composed_cells import Matrix
from harness.runs.matrix import Place
from harness.runs.progress import CellProgress
from harness.runs.sweep import Settle, Sweep
from harness.tests.support.configured import composed

LARGE = "+matrix={seed:[%s],workload.requests:[%s]}"


def matrix_words(seeds: int, sizes: int) -> str:
    return LARGE % (",".join(map(str, range(seeds))), ",".join(map(str, range(1, sizes + 1))))


class Tastes:
    """A cluster that takes three cells, and is told to stop."""

    def run(self, cells: Iterator[Cell], settle: Settle, *, samples: Sequence[Cell]) -> None:
        """Take them."""
        assert len(list(islice(cells, 3))) == 3
        raise KeyboardInterrupt


def test_the_first_cell_waits_for_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 89,700 cells those in which a value is new are built before, and three that are taken."""
    made: list[Place] = []
    build = Matrix.cell_at

    def counted(self: Matrix, place: Place) -> Cell | None:
        made.append(place)
        return build(self, place)

    monkeypatch.setattr(composed_cells, "CHECKED", 2)
    monkeypatch.setattr(Matrix, "cell_at", counted)
    with composed("policy=vllm", matrix_words(299, 300)) as config:
        matrix = Matrix(config)
        assert len(matrix.places) == 89_700
        monkeypatch.setattr(composed_cells, "MOST_CHECKED", 10)
        sweep = Sweep(tmp_path / "adhoc")
        with pytest.raises(KeyboardInterrupt), CellProgress(len(matrix.places)) as progress:
            sweep.run(matrix, Tastes(), progress)
    assert len(made) == 10
    assert list(tmp_path.glob("*/*")) == []


def test_every_value_of_every_axis_is_checked() -> None:
    with composed("policy=vllm", matrix_words(4, 3)) as config:
        matrix = Matrix(config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(composed_cells, "CHECKED", 0)
            built = matrix.checked(lambda: None)
    settings = [matrix.places[number].setting for number in built]
    assert {setting["seed"] for setting in settings} == {0, 1, 2, 3}
    assert {setting["workload.requests"] for setting in settings} == {1, 2, 3}
    assert len(built) == 6


def test_cells_come_in_order_and_what_is_built_is_not_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with composed("policy=vllm", matrix_words(2, 2)) as config:
        matrix = Matrix(config)
        built = matrix.checked(lambda: None)
        monkeypatch.setattr(Matrix, "cell_at", lambda self, place: pytest.fail("built again"))
        found = [(place.setting, cell) for place, cell in matrix.cells(built)]
    assert [setting for setting, _ in found] == [place.setting for place in matrix.places]
    assert all(isinstance(cell, Cell) and cell.setting == setting for setting, cell in found)
    assert built == {}


def test_a_cell_is_the_same_whatever_was_composed_before() -> None:
    """Values of cells of the same axes are put into one configuration; mappings are merged."""
    axes = "+matrix={hardware.gpu_count:[1,8],slo:[{ttft_s:1},{tpot_s:1}],variant:[paper,code]}"
    with composed("policy=vllm", axes) as config:
        matrix = Matrix(config)
        alone = [Matrix(config).config_at(place) for place in matrix.places[::-1]]
        assert [matrix.config_at(place) for place in matrix.places] == alone[::-1]
    assert [one.slo.ttft_s for one in alone if one] == [None, None, 1, 1] * 2
