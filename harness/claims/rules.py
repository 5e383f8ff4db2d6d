"""The page that says when a claim holds, made of what the rules' own files say.

    python -m harness.claims.rules

writes results/VERDICTS.md; a test fails where it is not what this makes.
"""

import sys
from types import ModuleType

from harness.claims import checks, reading, settling, verdicts
from harness.runs.record import ROOT

PAGE = ROOT / "results" / "VERDICTS.md"
PARTS: tuple[tuple[str, ModuleType], ...] = (
    ("Verdicts", settling),
    ("Findings", verdicts),
    ("What a claim says", reading),
    ("How it is tested", checks),
)


def page() -> str:
    """The page's text: what the files say of themselves, as it stands there."""
    parts = [
        f"## {title}\n\n`{module.__name__.replace('.', '/')}.py`\n\n```\n"
        f"{(module.__doc__ or '').strip()}\n```\n"
        for title, module in PARTS
    ]
    return "\n".join(["# When a claim of a paper holds\n", *parts])


def main() -> int:
    """Write the page; the exit status."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
