"""Places of a scenario's cells: the matrix's own, and variations of one key at a time."""

from harness.runs.matrix import Axes, Place, axes_of, places, settings_of


def test_the_last_axis_is_the_fastest() -> None:
    assert settings_of({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert settings_of({}) == [{}]


def test_a_case_is_the_product_of_its_lists_at_its_place_among_the_axes() -> None:
    matrix: Axes = {
        "rate": [2, 10],
        "cases": [{"system": "a", "policy": ["p", "q"]}, {"system": "b", "policy": "r"}],
        "seed": [0, 1],
    }
    assert settings_of(matrix) == [
        {"rate": rate, "system": system, "policy": policy, "seed": seed}
        for rate in (2, 10)
        for system, policy in (("a", "p"), ("a", "q"), ("b", "r"))
        for seed in (0, 1)
    ]
    every = {"rate": [2, 10], "system": ["a", "b"], "policy": ["p", "q", "r"], "seed": [0, 1]}
    assert axes_of(matrix) == every
    assert [*axes_of(matrix)] == [*every]


def test_a_case_has_its_own_values_in_place_of_the_matrix_s() -> None:
    """Fewer of a slower axis, others of a faster one; a list may be a value, and so may null."""
    matrix: Axes = {
        "gpus": [16, 32],
        "cases": [{"system": "a", "gpus": 32}, {"system": "b", "only": [["x"], None], "seed": 7}],
        "only": [["x", "y"]],
        "seed": [0, 1],
    }
    assert [tuple(setting.values()) for setting in settings_of(matrix)] == [
        (16, "b", ["x"], 7),
        (16, "b", None, 7),
        (32, "a", ["x", "y"], 0),
        (32, "a", ["x", "y"], 1),
        (32, "b", ["x"], 7),
        (32, "b", None, 7),
    ]
    assert axes_of(matrix)["only"] == [["x", "y"], ["x"], None]


def test_each_further_value_is_on_its_own() -> None:
    """At the small and the large of three sizes; of the large one there is a single seed."""
    found = places(
        {"cases": [{"size": [1, 2]}, {"size": 3, "seed": 0}], "seed": [0, 1]},
        vary={"slots": [4, 8], "keep": [True]},
        vary_at=[{"size": [1]}, {"size": [3]}],
    )
    own: list[Place] = []
    varied: list[Place] = []
    for place in found:
        (varied if place.varied else own).append(place)
    assert len(own) == 5
    ends = [{"size": 1, "seed": 0}, {"size": 1, "seed": 1}, {"size": 3, "seed": 0}]
    assert varied == [
        *(Place({**end, "slots": slots}, "slots") for slots in (4, 8) for end in ends),
        *(Place({**end, "keep": True}, "keep") for end in ends),
    ]


def test_a_varied_key_is_left_out_where_its_values_tell_nothing() -> None:
    """With one request at a time none waits: only the larger batch is run with another wait."""
    found = places(
        {"slots": [1, 4], "seed": [0, 1]},
        vary={"wait_s": [2.0, 5.0], "requests": [50]},
        vary_at=[{"seed": [0]}, {"slots": [4], "wait_s": [2.0, 5.0]}],
    )
    assert [place for place in found if place.varied] == [
        *(Place({"slots": 4, "seed": 0, "wait_s": wait}, "wait_s") for wait in (2.0, 5.0)),
        *(Place({"slots": slots, "seed": 0, "requests": 50}, "requests") for slots in (1, 4)),
    ]
