"""What was installed where a run was made: every package with its version, as pip writes it."""

import hashlib
from functools import cache
from importlib.metadata import distributions

from packaging.utils import canonicalize_name


@cache
def installed() -> dict[str, str]:
    """`packages`, a text of name==version in order, and its `sha256`; a few kilobytes.

    Two runs with the same digest were made beside the same packages. pip takes the text's words.
    """
    pins = {f"{canonicalize_name(it.name)}=={it.version}" for it in distributions() if it.name}
    packages = " ".join(sorted(pins))
    return {"sha256": hashlib.sha256(packages.encode()).hexdigest(), "packages": packages}
