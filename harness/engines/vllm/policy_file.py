"""The policy of a server, from a file: YAML as in scenarios/policy."""

from pathlib import Path

import yaml

from harness.build import build
from harness.interface.policies import SchedulingPolicy

POLICY_FILE = "SCHEDULER_POLICY"
"""Environment variable that names the policy of a server."""


def policy_of(path: str) -> SchedulingPolicy:
    """The policy of a file. Raises ValueError with the file's name."""
    try:
        node = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        policy: SchedulingPolicy = build(node)
        policy.schedule  # noqa: B018 - what is no policy is refused here, not at the first step
    except (OSError, yaml.YAMLError, AttributeError, ValueError) as error:
        raise ValueError(f"{POLICY_FILE}={path} holds no policy: {error}") from error
    return policy
