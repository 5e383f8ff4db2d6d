"""Numbers that are too large for their unit: refused by the name of their key, in every reader.

The names of settings end in their units, so this needs no list of them. The bounds are far above
anything that was ever served; beyond them a run would not end, or not count right.
"""

import re

MOST_REQUESTS = 10_000_000
MOST_TOKENS = 2**31
MOST_SECONDS = 1e9
MOST_BYTES = 2**60
WHOLE_NUMBERS = 2**63
"""What arrays and compiled code can count to."""

_RANGES = tuple(
    (re.compile(rf"(^|[._]){unit}(\W|$)"), most)
    for unit, most in (
        ("requests", MOST_REQUESTS),
        ("tokens", MOST_TOKENS),
        ("s", MOST_SECONDS),
        ("bytes", MOST_BYTES),
    )
)


def check_range(path: str, value: object) -> None:
    """Raise ValueError for a number too large for what `path` names.

    `path` is the dotted key; the unit may be that of a key above it (`prompt_tokens.mean`).
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and not -WHOLE_NUMBERS <= value < WHOLE_NUMBERS:
        raise ValueError(f"{path}={value} is beyond the whole numbers that can be counted")
    for unit, most in _RANGES:
        if unit.search(path) and value > most:
            raise ValueError(f"{path}={value}, it must be at most {most:,}")
