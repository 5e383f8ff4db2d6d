"""Packages whose classes a configuration may name: the project's, and packages that a user trusts.

Building a class runs its code, and so does importing its module. `_target_` of a configuration can
therefore name classes of the project alone, unless the command trusts another package:

    python harness/run.py --trust mylab policy=ours     # mylab, and every module inside it
    TRUSTED_PACKAGES=mylab vllm serve ...               # where there is no command line of ours

Keys of Hydra itself (`hydra.*`) are not covered: a scenario file that has them is code.
"""

import os
from collections.abc import Sequence

OURS = ("harness", "baselines", "systems")

TRUSTED_PACKAGES = "TRUSTED_PACKAGES"
"""Environment variable with the packages that are trusted besides, separated by commas.

Processes that are started later inherit it: engines and workers build by the same rule.
"""

OPTION = "--trust"
TRUST = f"where its package is yours, add {OPTION} PACKAGE"
"""What a sentence about an untrusted class ends with."""


def is_trusted(name: str) -> bool:
    """Whether a dotted name lies in a trusted package; of ours no `__main__`, which would run."""
    parts = name.split(".")
    if parts[0] in OURS:
        return not any(part.startswith("__") for part in parts)
    return any(name.startswith(f"{package}.") for package in _trusted())


def trust(package: str) -> None:
    """Trust a package, here and in processes that are started later. ValueError for a bad name."""
    if not all(part.isidentifier() for part in package.split(".")):
        raise ValueError(f"{OPTION} {package}: that is not the name of a package")
    os.environ[TRUSTED_PACKAGES] = ",".join(dict.fromkeys([*_trusted(), package]))


def without_trust(words: Sequence[str]) -> list[str]:
    """The words of a command line but `--trust PACKAGE`, which is done here, once for each."""
    left, rest = [], iter(words)
    for word in rest:
        option, equals, package = word.partition("=")
        if option != OPTION:
            left.append(word)
            continue
        package = package if equals else next(rest, "")
        trust(package)
    return left


def _trusted() -> list[str]:
    return [name for name in os.environ.get(TRUSTED_PACKAGES, "").split(",") if name]
