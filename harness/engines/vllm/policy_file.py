"""The policy of a server, from a file: YAML as in scenarios/policy.

Its classes are ours, or of a package in `TRUSTED_PACKAGES` (`harness.trust`).
"""

from pathlib import Path

from harness.build import build
from harness.interface.policies import SchedulingPolicy
from harness.yaml_files import read_yaml

POLICY_FILE = "SCHEDULER_POLICY"
"""Environment variable that names the policy of a server."""


def policy_of(path: str) -> SchedulingPolicy:
    """The policy of a file. Raises ValueError with the file's name."""
    try:
        policy: SchedulingPolicy = build(read_yaml(Path(path)), kind=SchedulingPolicy)
    except ValueError as error:
        raise ValueError(f"{POLICY_FILE}={path} holds no policy: {error}") from error
    return policy
