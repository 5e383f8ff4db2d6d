"""Cells of a command line: of its axes and cases, and of variations."""

from pathlib import Path
from typing import Any

import pytest

from harness import run
from harness.runs.cells import Cell
from harness.runs.composed_cells import Matrix
from harness.tests.support.command import refused
from harness.tests.support.configured import cells_of, composed


def test_a_key_on_the_command_line_is_no_axis() -> None:
    words = ("+matrix.seed=[0,1]", "+matrix.system=[max_heuristic,min_heuristic]")
    assert [cell.setting for cell in cells_of(*words)] == [
        {"seed": seed, "system": system}
        for seed in (0, 1)
        for system in ("max_heuristic", "min_heuristic")
    ]
    chosen = cells_of(*words, "seed=7", "system=samullm")
    assert [(cell.seed, cell.system.name, cell.setting) for cell in chosen] == [(7, "samullm", {})]


PAIRS = (
    "+matrix={cases:[{policy:[vllm,vllm_0_3],predictor:none},{policy:srtf,predictor:oracle}],"
    "seed:[0,1]}"
)


def places(*words: str) -> list[tuple[object, ...]]:
    """The values on the axes of every cell; no cell is built."""
    with composed(*words) as config:
        return [tuple(place.setting.values()) for place in Matrix(config).places]


def test_axes_of_cases_are_axes_as_all_others() -> None:
    cells = cells_of(PAIRS, "+compare={axis:policy,reference:srtf}")
    assert [tuple(cell.setting.values()) for cell in cells] == [
        (policy, predictor, seed)
        for policy, predictor in (("vllm", "none"), ("vllm_0_3", "none"), ("srtf", "oracle"))
        for seed in (0, 1)
    ]
    assert [_plainly(cell)["chosen"]["policy"] for cell in cells[::2]] == [
        "vllm",
        "vllm_0_3",
        "srtf",
    ]


def test_a_key_on_the_command_line_is_no_axis_of_a_case() -> None:
    """The cells asked for are kept: every policy with the predictor that is given."""
    assert places(PAIRS, "predictor=oracle", "seed=3") == [("vllm",), ("vllm_0_3",), ("srtf",)]
    (one,) = {cell.folder for cell in cells_of(PAIRS, "predictor=oracle", "seed=3", "policy=srtf")}
    assert one.name


def test_a_word_gives_other_cases_or_other_values_beside_them() -> None:
    other = "++matrix={cases:[{policy:vllm,predictor:none}],seed:[5]}"
    assert places(PAIRS.replace("+", "++"), other) == [("vllm", "none", 5)]
    assert places(PAIRS, "++matrix.seed=[7]")[::2] == [("vllm", "none", 7), ("srtf", "oracle", 7)]
    said = refused(PAIRS, "++matrix.policy=[vllm]")
    assert said == "matrix.policy=['vllm']: every case has its own policy"


def _plainly(cell: Cell) -> Any:
    """What a cell was made of."""
    return cell.config


VARIED = "variations=true"
VARY = ("+matrix={system:[fixed,max_heuristic],seed:[0,1]}", "policy=vllm_0_3", VARIED)
SLOTS = "policy.rule.max_num_seqs"


def test_a_key_is_varied_beside_the_matrix() -> None:
    cells = cells_of(*VARY, f"+vary={{{SLOTS}:[64,32]}}", "+vary_at=[{seed:[1]}]")
    own, varied = cells[:4], cells[4:]
    assert [cell.varied for cell in own] == [""] * 4
    assert [cell.setting for cell in varied] == [
        {"system": system, "seed": 1, SLOTS: slots}
        for slots in (64, 32)
        for system in ("fixed", "max_heuristic")
    ]
    assert {cell.config["varied"] for cell in varied} == {SLOTS}
    assert {_plainly(cell)["policy"]["rule"]["max_num_seqs"] for cell in varied} == {64, 32}
    assert len({cell.folder for cell in cells}) == 8


def test_a_pattern_of_a_given_key_restricts_no_other() -> None:
    words = (*VARY, f"+vary={{{SLOTS}:[64],workload.requests:[5]}}")
    at = f"+vary_at=[{{{SLOTS}:[64],system:[fixed]}}]"
    assert [place[0] for place in places(*words, at)[4:]] == ["fixed"] * 2 + [
        *(["fixed"] * 2 + ["max_heuristic"] * 2)
    ]
    assert len(places(*words, at, f"{SLOTS}=64")) == 4 + 4


def test_a_group_is_varied_and_the_file_that_was_chosen_is_known() -> None:
    *own, varied = cells_of("policy=vllm_0_3", VARIED, "+vary={predictor:[oracle]}")
    assert len(own) == 1
    assert (varied.varied, _plainly(varied)["chosen"]["predictor"]) == ("predictor", "oracle")


def test_what_refers_to_another_key_follows_it_from_cell_to_cell() -> None:
    """It was worked out once, from the configuration without axes."""
    words = ("workload.requests=${hardware.nvlink_island}", "hardware.gpu_count=8")
    cells = cells_of(*words, "+matrix={hardware.nvlink_island:[4,2]}")
    assert [_plainly(cell)["workload"]["requests"] for cell in cells] == [4, 2]


def test_what_a_cell_has_already_or_cannot_have_is_no_variation() -> None:
    """Only the planner's own system has parts of a planner."""
    parts = "system.placement.preemption"
    cells = cells_of("+matrix={system:[fixed,samullm]}", VARIED, f"+vary={{{parts}:[false]}}")
    assert [cell.system.name for cell in cells if cell.varied] == ["samullm"]
    (given,) = cells_of("policy=vllm_0_3", VARIED, f"+vary={{{SLOTS}:[64]}}", f"{SLOTS}=64")
    assert given.varied == ""
    assert refused("policy=vllm_0_3", VARIED, f"+vary={{{SLOTS}:[512]}}") == (
        f"vary.{SLOTS}: every cell has 512 already, or none has such a key, or vary_at names none"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+vary={seed:[]}"], "vary.seed=[] is not a list of values"),
        (["+vary={seed:3}"], "vary.seed=3 is not a list of values"),
        (
            ["+matrix={seed:[0,1]}", "+vary={seed:[2]}"],
            "vary.seed=[2], but seed is an axis of the matrix already",
        ),
        (
            [VARIED, "+vary={policy.rule.slots:[2]}"],
            "vary.policy.rule.slots: every cell has 2 already, or none has such a key, "
            "or vary_at names none",
        ),
        (["+vary_at=[{sed:[1]}]"], "No axis of the matrix is called 'sed'; none is known."),
        (
            ["+matrix={seed:[0,1]}", "+vary_at=[{seed:[2]}]"],
            "vary_at.seed=[2]: no cell has seed=2",
        ),
        (["+matrix={seed:[0]}", "+vary_at=[{seed:[]}]"], "vary_at.seed=[] is not a list of values"),
    ],
)
def test_a_variation_that_says_nothing_is_refused(words: list[str], said: str) -> None:
    assert refused(*words) == said


def test_a_key_that_is_given_is_said_to_be_no_axis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("workload.requests=2", f"results={tmp_path}", "workers=1", "tracking=none")
    with composed(*words, "+matrix.seed=[0,1]", "seed=1") as config:
        run.run(config)
    said = capsys.readouterr()
    assert "seed=1: no axis of this run, which would else have seed at each of [0, 1]" in said.err
    assert "1 seed" in said.out


def test_a_policy_that_reads_predictions_serves_by_default() -> None:
    (cell,) = cells_of("workload=chats", "policy=ssjf_continuous", "predictor=oracle")
    assert (cell.system.name, cell.gpus, len(cell.workload_factory.models)) == ("fixed", 1, 1)
