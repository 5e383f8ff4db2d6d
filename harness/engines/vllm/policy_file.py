"""The policy of a server, from a file: YAML as in scenarios/policy.

Its classes are ours, or of a package in `TRUSTED_PACKAGES` (`harness.config.trust`). A constructor
may ask for `seed` (0) and `host_memory` (none); `costs` and `cluster`, of which a server knows
nothing, the file itself has to name.
"""

from collections.abc import Mapping
from pathlib import Path

from harness.config.build import build
from harness.config.yaml_files import read_policy
from harness.engines.host_memory import NO_HOST_MEMORY
from harness.interface.policies import SchedulingPolicy

POLICY_FILE = "SCHEDULER_POLICY"
"""Environment variable that names the policy of a server."""
OFFERED: Mapping[str, object] = {"seed": 0, "host_memory": NO_HOST_MEMORY}


def policy_of(path: str, limits: Mapping[str, int]) -> SchedulingPolicy:
    """The policy of a file, for a server of these limits. ValueError names the file."""
    try:
        node = read_policy(Path(path), limits)
        policy: SchedulingPolicy = build(node, offered=OFFERED, kind=SchedulingPolicy)
    except ValueError as error:
        raise ValueError(f"{POLICY_FILE}={path} holds no policy: {error}") from error
    return policy
