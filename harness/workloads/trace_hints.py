"""What a user can type to say which columns of a file are which."""

import re
from collections.abc import Sequence

from harness.workloads.trace_columns import ARRIVAL, OUTPUT_TOKENS, PROMPT_TOKENS
from harness.workloads.trace_times import UNITS, unit_in_name

_LIKE = {
    ARRIVAL: r"arriv|^t(s|\b|_)|_ts$|time|date|start",
    PROMPT_TOKENS: r"prompt|input|context|prefill|request.?(tok|len)|^isl|^in\b",
    OUTPUT_TOKENS: r"output|complet|generat|decod|respon|answer|^osl|^out\b",
}
"""What the names of columns are like; of several the first."""
_UNLIKE = r"wait|elapsed|duration|_ids?$|_id_|text"


def columns_hint(there: Sequence[str]) -> str:
    """A word for the command line that reads a file of these columns, as far as names tell."""
    named, left = {}, [column for column in there if not re.search(_UNLIKE, column.lower())]
    for ours, like in _LIKE.items():
        found = [column for column in left if re.search(like, column.lower())]
        if found:
            left.remove(found[0])
        named[ours] = found[0] if found else "COLUMN"
    if named[ARRIVAL] == "COLUMN":
        drawn = " with workload/arrivals=gamma"
        del named[ARRIVAL]
    else:
        drawn, unit = "", unit_in_name(named[ARRIVAL].lower())
    keys = [f"{ours}:{_word(theirs)}" for ours, theirs in named.items()]
    if ARRIVAL in named and named[ARRIVAL] != ARRIVAL:
        keys.append(f"unit:{unit or 'UNIT'}")
    keys_said = f"'workload.columns={{{','.join(keys)}}}'"
    units = f" (UNIT: {', '.join(UNITS)})" if keys[-1] == "unit:UNIT" else ""
    return f"{keys_said}{drawn} reads these columns and leaves out others{units}"


def _word(column: str) -> str:
    """The name of a column as a value of a Hydra dictionary."""
    if re.fullmatch(r"[A-Za-z_][\w.\-]*", column):
        return column
    escaped = column.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
