"""What a manifest has to name."""

import json
from pathlib import Path

import pytest

from harness.runs.manifest import MANIFEST, NEEDED, damage_of, write_manifest


@pytest.mark.parametrize("name", [name for name in NEEDED if name != MANIFEST])
def test_a_manifest_that_leaves_a_file_out_is_damaged(tmp_path: Path, name: str) -> None:
    """What is not listed could be edited, and was printed."""
    folder = tmp_path / "a"
    folder.mkdir()
    for needed in NEEDED:
        (folder / needed).write_text(needed)
    (folder / MANIFEST).unlink()
    write_manifest(folder, "a")
    assert damage_of(folder) is None
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["sha256"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert damage_of(folder) == f"has a {MANIFEST} without {name}"
