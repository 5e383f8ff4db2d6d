"""Whose classes a configuration may name: the project's, and those of packages that a user trusts.

To build a class is to run its code, and importing its module too. So a file that somebody else
wrote can choose among our classes and no others, unless the command says otherwise:

    python harness/run.py --trust mylab policy=ours     # mylab, and every module inside it
    TRUSTED_PACKAGES=mylab vllm serve ...               # where there is no command line of ours
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
    """Trust a package, here and in processes that are started later.

    Raises ValueError for what cannot be the name of one.
    """
    if not all(part.isidentifier() for part in package.split(".")):
        raise ValueError(f"{OPTION} {package}: that is not the name of a package")
    os.environ[TRUSTED_PACKAGES] = ",".join(dict.fromkeys([*_trusted(), package]))


def without_trust(words: Sequence[str]) -> list[str]:
    """The words of a command line but `--trust PACKAGE`, which is done here, once for each.

    Raises ValueError for a `--trust` that names nothing.
    """
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
