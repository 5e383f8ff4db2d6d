"""What no run may break, whatever the policy: random workloads under every policy and batch rule.

Every run is made twice: with fast-forward, and decided in the open, between checks of what a policy
sees (`harness.policy_checks`).
"""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.config.paths import ROOT
from harness.config.yaml_files import policy_files
from harness.engines.simulator.loop import SUPPORTS
from harness.policy_checks import NotOfferedError, adds_up, load_of, maker
from harness.tests.support.files import offered_to_all
from harness.tests.support.loads import Load, loads
from harness.tests.support.serving import LinearCosts, cluster, rule, serve, workload
from harness.tools.benchmarks.speed import policies

RULES = {
    "padded": rule(chunked_prefill=False, pads=True, max_num_seqs=4, tokens=300, padding=40),
    "whole": rule(chunked_prefill=False, pads=False, max_num_seqs=6, tokens=220),
    "chunked": rule(chunked_prefill=True, max_num_seqs=6, tokens=16),
    "spare": rule(chunked_prefill=True, max_num_seqs=8, tokens=40, spare=0.02),
}
FILES = {path.stem: path for path in policy_files()}


@pytest.mark.parametrize("name", [*RULES, *FILES])
@given(load=loads(24, 60), blocks=st.sampled_from([12, 17, 30, 200]))
@settings(max_examples=3, deadline=None)
def test_a_run_adds_up_in_the_open_and_with_fast_forward(
    name: str, load: Load, blocks: int
) -> None:
    make = maker(FILES[name]) if name in FILES else lambda: Fcfs(rule=RULES[name])
    try:
        adds_up(make, load_of(*load, blocks=blocks))
    except NotOfferedError as lack:
        pytest.skip(str(lack))


def _digests() -> dict[str, str]:
    """One run of every policy and rule, as a hash of all its requests' columns to the last bit."""
    rng = np.random.default_rng(17)
    prompts, outputs = rng.integers(1, 90, 60).tolist(), rng.integers(1, 60, 60).tolist()
    load = workload(prompts, outputs, np.cumsum(rng.exponential(0.05, 60)).tolist(), services=2)
    offered = offered_to_all(LinearCosts(), cluster())
    found = {}
    rules = {name: Fcfs(rule=batch_rule) for name, batch_rule in RULES.items()}
    for name, policy in sorted((rules | policies(offered)).items()):
        if not policy.requires - SUPPORTS:
            frame = serve(load, policy, costs=LinearCosts(blocks=24)).requests
            numbers = frame.select_dtypes("number").to_numpy(float)
            found[name] = hashlib.sha256(numbers.tobytes()).hexdigest()
    return found


def _digests_elsewhere(hash_seed: int) -> str:
    code = "from harness.tests.engines.test_invariants import _digests; print(_digests())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": "."},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_other_processes_find_the_same() -> None:
    """Whatever order their sets have."""
    assert _digests_elsewhere(1) == str(_digests())
