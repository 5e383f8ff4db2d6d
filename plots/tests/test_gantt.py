"""The Gantt chart shows every interval of a run."""

from pathlib import Path

import pandas as pd

from plots import gantt


def test_bars_are_drawn_and_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    gpu = pd.DataFrame(
        {
            "gpu": [0, 0, 1],
            "group": ["a@0#1", "a@0#1", "b@1#1"],
            "use": ["loading", "busy", "busy"],
            "start_s": [0.0, 2.0, 1.0],
            "end_s": [2.0, 5.0, 4.0],
        }
    )
    written = gantt.draw(gpu, basis="a made-up profile", folder=tmp_path)
    assert [path.name for path in written] == ["gantt.png", "gantt.pdf"]
    assert all(path.stat().st_size > 1000 for path in written)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert gantt.main([str(empty)]) == 2
    assert list(empty.iterdir()) == []
