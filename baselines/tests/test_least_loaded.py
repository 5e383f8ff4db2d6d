"""Lines by requests and by tokens, worked out by hand."""

import pytest

from baselines.fcfs import Fcfs
from baselines.least_loaded import LeastLoaded
from harness.tests.support.serving import Everywhere, FlatCosts, rule, serve, workload


def _finished_s(counts: str, prompts: list[int], outputs: list[int], come_s: list[float]) -> object:
    frame = serve(
        workload(prompts, outputs, come_s),
        Fcfs(rule=rule(max_num_seqs=1)),
        Everywhere(("m", (0,)), ("m", (1,))),
        costs=FlatCosts(load=0.0),
        dispatch=LeastLoaded(counts=counts),
    ).requests
    return frame["finished_s"].tolist()


@pytest.mark.parametrize(
    ("counts", "prompts", "ends"),
    [
        # r0 to the first group until 0.5 + 9 * 0.25 = 2.75 s, r1 to the second until 0.5 s. At
        # 0.5 s, where r1 has been answered, r2 goes there; at 0.6 s both have one: to the first.
        ("requests", [4, 4, 4, 4], [2.75, 0.5, 1.0, 3.25]),
        # By tokens the first group has 4 and 1, the second 90: r3 joins r0 rather than r2.
        ("tokens", [4, 4, 90, 4], [2.75, 0.5, 1.0, 3.25]),
        # By tokens the first group has 90 and 1, the second 4: r3 waits behind r2.
        ("tokens", [90, 4, 4, 4], [2.75, 0.5, 1.0, 1.5]),
    ],
)
def test_who_joins_which_line(counts: str, prompts: list[int], ends: list[float]) -> None:
    """One request at a time in each of two groups: 0.5 s for a prompt, 0.25 s a token more."""
    assert _finished_s(counts, prompts, [10, 1, 1, 1], [0.0, 0.0, 0.5, 0.6]) == ends


def test_tokens_grow_with_the_answer() -> None:
    """Ten tokens of prompt each; at 2.75 s r0 has generated ten, r1 nine: r2 waits behind r1."""
    ends = _finished_s("tokens", [10, 10, 1], [12, 12, 1], [0.0, 0.25, 2.75])
    assert ends == [3.25, 3.5, 4.0]


def test_a_line_of_something_else() -> None:
    with pytest.raises(ValueError, match="counts is weight, it must be requests or tokens"):
        LeastLoaded(counts="weight")
