"""Small public inputs with known right values: configs of models, traces, loads."""

from pathlib import Path

CASES = Path(__file__).parents[1] / "data" / "cases"


def listed(kind: str) -> list[str]:
    """Names of the files of a kind: models, traces or sched."""
    return sorted(path.name for path in (CASES / kind).iterdir())
