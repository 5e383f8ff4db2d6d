"""Ask pip-audit what is known against the locked versions: `make audit`.

Exit code 1 where something is known, 3 where nobody could be asked. Installs nothing.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
UNREACHED = 3

Entry = Mapping[str, Any]  # one dependency of pip-audit's report


def audited(lock: Path) -> list[Entry]:
    """Every package of a lock, with its `vulns` or a `skip_reason`; none where asking failed."""
    ask = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(
        [*ask, "--disable-pip", "--no-deps", "--requirement", str(lock)],
        capture_output=True,
        text=True,
    )
    try:
        entries: list[Entry] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return []
    return entries


def told(entries: list[Entry]) -> Iterator[str]:
    """A line for each vulnerability, in the order of names."""
    for entry in sorted(entries, key=lambda entry: str(entry["name"])):
        for known in entry.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no release"
            yield f"{entry['name']} {entry['version']}: {known['id']}, fixed in {fixed}"


def main() -> int:
    """Print what is known and how many packages were asked about; the exit code."""
    locks = sorted(path for path in FOLDER.glob("*.txt"))
    entries = [entry for lock in locks for entry in audited(lock)]
    answered = {f"{it['name']} {it['version']}" for it in entries if "skip_reason" not in it}
    if not answered:
        print("the service that knows vulnerabilities cannot be asked from here", file=sys.stderr)
        return UNREACHED
    lines = list(dict.fromkeys(told(entries)))
    counts = f"{len(answered)} packages audited, {len(lines)} vulnerabilities"
    print("\n".join([*lines, counts]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
