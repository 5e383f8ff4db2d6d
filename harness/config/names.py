"""Names that are in no table."""

import difflib
from collections.abc import Mapping

MOST_NAMED = 30
"""Names that a sentence lists."""


def unknown_name(kind: str, name: str, known: Mapping[str, object], listed_in: str = "") -> str:
    """Sentence for a name that is not in a table: the name, and what was perhaps meant.

    `listed_in` says where the names of a long table are listed.
    """
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if close:
        meant = f"closest: {', '.join(close)}"
    elif listed_in:
        meant = f"known: {listed_in}"
    else:
        names, more = sorted(known)[:MOST_NAMED], len(known) - MOST_NAMED
        meant = f"known: {', '.join(names)}" if names else "none is known"
        meant += f" and {more} more" if more > 0 else ""
    return f"No {kind} is called {name!r}; {meant}."
