"""Names that configuration files had before are refused with today's, wherever they stand."""

import importlib.util
from pathlib import Path

import pytest

from harness.build import build
from harness.renamed import CLASSES, KEYS, MODULES, renamed_key, renamed_target
from harness.tests.support.command import ENSEMBLE, command, refused
from harness.tests.support.configured import composed


@pytest.mark.parametrize("module", sorted(set(MODULES.values())))
def test_where_a_module_is_said_to_be_it_is(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_what_has_its_name_still_is_not_renamed() -> None:
    assert not KEYS.keys() & set(KEYS.values())
    assert not CLASSES.keys() & set(CLASSES.values())
    assert renamed_key("policy.rule.max_num_seqs") is None
    assert renamed_target("systems.ssjf.policy.Ssjf") is None
    with composed("+scenario=mixed", "workload=mixed") as config:
        assert config.name == "mixed"


RULE = "there is no policy.rule.mixed; it is now policy.rule.chunked_prefill"
SLOTS = "there is no policy.rule.seats; it is now policy.rule.max_num_seqs"
WORDS = {
    "policy.rule.mixed=true": RULE,
    "+policy.rule.mixed=true": RULE,
    "++policy.rule.mixed=true": RULE,
    "~policy.rule.mixed": RULE,
    "engine.max_batch_requests=4": "there is no engine.max_batch_requests; it is now "
    "engine.max_num_seqs",
    "+policy.rule.max_batch_tokens=4": "there is no policy.rule.max_batch_tokens; it is now "
    "policy.rule.max_num_batched_tokens",
    "policy.rule.spare_blocks_share=0": "there is no policy.rule.spare_blocks_share; it is now "
    "policy.rule.watermark",
    "fidelity=code": "there is no fidelity; it is now variant",
    "+fidelity=code": "there is no fidelity; it is now variant",
    "+system.by_fidelity={}": "there is no system.by_fidelity; it is now system.by_variant",
    "variant=${fidelity}": "there is no fidelity; it is now variant",
    "+matrix.fidelity=[paper,code]": "there is no fidelity; it is now variant",
    "+matrix={policy.rule.seats:[4,8]}": SLOTS,
    "skip=[{policy.rule.seats:[4]}]": SLOTS,
    "+compare={axis:policy.rule.seats,reference:4}": SLOTS,
    "policy.rule._target_=harness.decisions.BatchRule": "policy.rule._target_: there is no "
    "harness.decisions.BatchRule; it is now harness.interface.decisions.ContinuousBatching",
    "policy.rule._target_=harness.interface.decisions.RequestBatches": "policy.rule._target_: "
    "there is no harness.interface.decisions.RequestBatches; it is now "
    "harness.interface.decisions.StaticBatching",
    "engine._target_=harness.engines.simulator.Simulator": "engine._target_: there is no "
    "harness.engines.simulator.Simulator; it is now harness.engines.simulator.loop.Simulator",
    "system.placement._target_=harness.staged_placement.StagedPlacement": "system.placement."
    "_target_: there is no harness.staged_placement.StagedPlacement; it is now "
    "harness.planning.follow.StagedPlacement",
}
"""Words on the command line and the sentence about them."""


@pytest.mark.parametrize("word", WORDS)
def test_on_the_command_line(tmp_path: Path, word: str) -> None:
    assert refused(*ENSEMBLE, f"results={tmp_path}", word) == WORDS[word]


FILES = {
    "policy: {rule: {mixed: true}}": RULE,
    "engine: {max_batch_tokens: 9}": "there is no engine.max_batch_tokens; it is now "
    "engine.max_num_batched_tokens",
    "fidelity: code": "there is no fidelity; it is now variant",
    "system: {by_fidelity: {paper: {}}}": "there is no system.by_fidelity; it is now "
    "system.by_variant",
    "system: {placement: {one_seed: '${system.by_fidelity.paper.one_seed}'}}": "there is no "
    "system.by_fidelity.paper.one_seed; it is now system.by_variant.paper.one_seed",
    "matrix: {policy.rule.seats: [4, 8]}": SLOTS,
    "matrix: {fidelity: [paper, code]}": "there is no fidelity; it is now variant",
    "policy: {rule: {_target_: harness.decisions.BatchRule}}": WORDS[
        "policy.rule._target_=harness.decisions.BatchRule"
    ],
}
"""What a scenario file holds and the sentence about it."""


@pytest.mark.parametrize("text", FILES)
def test_in_a_scenario_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "old.yaml").write_text(f"# @package _global_\n{text}\n")
    words = (*ENSEMBLE, f"hydra.searchpath=[file://{tmp_path}]", "+scenario=old")
    assert refused(*words, f"results={tmp_path / 'results'}") == FILES[text]


def test_in_a_node_that_is_built_on_its_own() -> None:
    rule = {"_target_": "harness.interface.decisions.ContinuousBatching", "mixed": True}
    with pytest.raises(ValueError, match=r"^there is no rule.mixed; it is now rule.chunked_pref"):
        build({"_target_": "baselines.fcfs.Fcfs", "rule": rule})


@pytest.mark.slow
def test_the_command_says_so_and_ends_with_2(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = command("fidelity=code", f"results={tmp_path / 'results'}", folder=elsewhere)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no fidelity; it is now variant\n"
