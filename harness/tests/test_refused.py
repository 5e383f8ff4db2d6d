"""Bad input on the command line is one sentence that names it."""

from pathlib import Path

import pytest

from harness.tests.support.command import ENSEMBLE, refused

REFUSED = {
    "+typo=1": "No configuration key is called 'typo'; closest: policy.",
    "workload.request=1": "No configuration key is called 'workload.request'; closest: workload.r",
    "+workload.typo=1": "workload.typo=1 is not an option of Ensemble",
    "+policy.rule.typo=1": "policy.rule.typo=1 is not an option of ContinuousBatching",
    "~system.placement": "system.placement is missing",
    "workload.requests=-5": "workload.requests is -5, it must be positive",
    "hardware.weights_bytes_per_s=nan": "hardware.weights_bytes_per_s=nan: it must be a finite",
    "workload.output_scale=nan": "workload.output_scale=nan is not a finite number",
    "workload.models=[vicuna-14b]": "No model is called 'vicuna-14b'; closest: vicuna-13b-v1.5",
    "workload.source=/no/such": "workload.source=/no/such is neither profile, hub nor a file",
    "workload.profile=nope": "No length profile is called 'nope'",
    "hardware.gpu_count=0": "hardware has gpu_count=0 and nvlink_island=2, both must be at least 1",
    "hardware.gpu=nope": "No GPU is called 'nope'; known: A100-40G",
    "hardware.memory_share=2": "A memory share lies between 0 and 1, not 2.0.",
    "hardware.profile=nope": "There is no folder of cost profiles ",
    "hardware.profile=lengths": "hardware.profile=lengths is no folder of cost profiles: it holds",
    "variant=${variant}": "Recursive interpolation detected",
    "system.name=5": "system.name=5 is not a text",
    "system=nope": "No system is called 'nope'; known: ",
    "+scenario=nope": "No scenario is called 'nope'",
    "policy.rule.max_num_seqs=x": "policy.rule.max_num_seqs='x' is not a whole number",
    "engine._target_=no.such": "engine._target_=no.such names no class",
    "seed=x": "seed='x': it must be a whole number",
    "tracking=foo": "tracking=foo is not one of wandb, none",
    "name=a/b": "name=a/b cannot be the name of a folder of results",
    "+matrix.seed=[a]": "seed='a': it must be a whole number",
    "+matrix.seed=5": "matrix.seed=5 is not a list of values",
    "variant=program": "variant=program is not one of paper, code",
    "policy=ssjf_none": "system.placement.rule is a StaticBatching, not ContinuousBatching",
    "+matrix.cases=[seed]": "matrix.cases holds seed, which is not axes with a value or a list of",
    "+matrix.cases=[{sed:0}]": "No configuration key is called 'sed'; closest: seed",
    "+matrix.cases=[{seed:0},{seed:[1,0]}]": "matrix.cases: seed=0 is there twice",
    "vary_at=[{sed:[0]}]": "No axis of the matrix is called 'sed'",
    "+compare.axis=seed": "compare.reference is missing",
    "+compare={axis:seed,reference:0}": "compare.axis=seed is no axis of the matrix",
    "workload.requests=[": "workload.requests=[: not KEY=VALUE as Hydra reads it: no viable",
    "shows=[inference_seconds]": "No figure of a run is called 'inference_seconds'; closest: infer",
    "cluster=slurm": "No cluster is called 'slurm'; known: local, ray",
    "results=.": "results=. is where the project is; results=results is below it",
    "+matrix.name=[a,b]": "name cannot differ from cell to cell: no result depends on it",
    "+compare={axis:system,reference:nope} +matrix.system=[samullm]": "compare.reference=nope is",
    "hardware.gpu_count=10000000": "hardware.gpu_count=10000000: it must be at most 65536",
    "hardware.gpu=H100-80G": "hardware.profile=a100_80g_vllm_0_3 holds costs of A100-80G, not of",
    "workers=100000": "workers=100000: it must be at most 1024",
    "policy.rule.watermark=-5": "rule.watermark is -5, it must be from 0 to 1",
    "workload=chats workload.arrivals.burstiness=1e200": "workload.arrivals.burstiness is 1e+200",
    "+workload._args_=[1]": "workload._args_=[1] is not an option of Ensemble",
    "workload._target_=harness.predictors.oracle.Oracle": "workload is a Oracle, not Workload",
    "hub": "hub: not KEY=VALUE as Hydra reads it: Error parsing override 'hub'",
    "seed=0,1": "Ambiguous value for argument 'seed=0,1': give -m for a run of each value, or a l",
    "name=/c=d": "name=/c=d: not KEY=VALUE as Hydra reads it: a text is quoted, 'name=\"/c=d\"'",
    "name=é,1": "name=é,1: not KEY=VALUE as Hydra reads it: a text is quoted, 'name=\"é,1\"'",
    "name=${b}": "name: Interpolation key 'b' not found; a text that has ${ is given with \\${",
}
"""Words on the command line and how the sentence about them begins."""


@pytest.mark.parametrize("policy", ["ssjf_continuous", "srtf"])
def test_an_order_by_predictions_that_nobody_makes_is_refused(policy: str) -> None:
    said = refused(f"policy={policy}", "predictor=none")
    assert "orders by predicted lengths, and predictor=none predicts none" in said


@pytest.mark.parametrize("word", REFUSED)
def test_bad_input_is_a_sentence_that_names_it(tmp_path: Path, word: str) -> None:
    said = refused(*ENSEMBLE, f"results={tmp_path}", *word.split())
    assert said.startswith(REFUSED[word])
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


TOP = "# @package _global_\n"
FILES = {
    "name: [a": "line 3: expected ',' or ']', but got '<stream end>'",
    "name:\tb\n\tc: 1": "line 2: found character '\\t' that cannot start any token",
    "name: a\nname: b": "line 3: found duplicate key name",
    "name: !tag a": "line 2: could not determine a constructor for the tag '!tag'",
    "hardware: {typo: 1}": "No configuration key is called 'hardware.typo'; closest: hardware.",
    "nam: x": "No configuration key is called 'nam'; closest: name",
    "hardware: {gpu_count: x}": "hardware.gpu_count='x': it must be a whole number",
    "matrix: 5": "matrix=5: it must be keys with values",
    "hardware: null": "hardware=None: it must be keys with values",
}
"""What a scenario may hold, and what is said of it besides its file."""


@pytest.mark.parametrize("text", FILES, ids=[text[:20] for text in FILES])
def test_a_bad_scenario_is_a_sentence_with_file_and_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scenario" / "bad.yaml"
    path.parent.mkdir()
    path.write_text(TOP + text + "\n")
    said = refused(f"hydra.searchpath=[file://{tmp_path}]", "+scenario=bad")
    assert FILES[text] in said
    assert "scenario/bad.yaml" in said or " line " not in FILES[text]
    assert "\n" not in said
