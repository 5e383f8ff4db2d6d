"""Places of a scenario's cells: the matrix's own, and variations of one key at a time."""

from harness.runs.matrix import Place, combinations_of, places


def test_the_last_axis_is_the_fastest() -> None:
    assert list(combinations_of({"a": [1, 2], "b": ["x", "y"]})) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert list(combinations_of({})) == [{}]


def test_each_further_value_is_on_its_own() -> None:
    """At the small and the large of three sizes; what is skipped has no variation either."""
    found = places(
        {"size": [1, 2, 3], "seed": [0, 1]},
        skip=[{"size": [3], "seed": [1]}],
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


def test_a_varied_key_is_skipped_where_its_values_tell_nothing() -> None:
    """With one request at a time none waits: only the larger batch is run with another wait."""
    found = places(
        {"slots": [1, 4]},
        skip=[{"slots": [1], "wait_s": [2.0, 5.0]}],
        vary={"wait_s": [2.0, 5.0], "requests": [50]},
        vary_at=[],
    )
    assert [place for place in found if place.varied] == [
        *(Place({"slots": 4, "wait_s": wait}, "wait_s") for wait in (2.0, 5.0)),
        *(Place({"slots": slots, "requests": 50}, "requests") for slots in (1, 4)),
    ]
