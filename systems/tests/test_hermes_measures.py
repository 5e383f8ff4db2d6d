"""Figures of Hermes' claims from run folders, worked out by hand."""

from pathlib import Path

import pandas as pd
import pytest

from systems.hermes.measures import blocks_found_share, lru_misses, misses_avoided


def _requests(folder: Path, prompt_tokens: list[int], started_s: list[float]) -> None:
    count = len(prompt_tokens)
    pd.DataFrame(
        {"request": range(count), "prompt_tokens": prompt_tokens, "started_s": started_s}
    ).to_parquet(folder / "requests.parquet")


def _uses(folder: Path, backend: str, *uses: tuple[int, str, str, int]) -> None:
    """Each with request, what was used, how it was found, and tokens."""
    frame = pd.DataFrame(uses, columns=pd.Index(["request", "resource", "found", "tokens"]))
    frame.assign(backend=backend).to_parquet(folder / "backends.parquet")


def test_blocks_found_by_hand(tmp_path: Path) -> None:
    """Full blocks of 32: first prompts of 2 and 1, then 3 of which 2 are found, then 4 of which 0.

    The last 9 tokens of the third prompt and the 31 of what it finds are no full block.
    """
    _requests(tmp_path, [64, 40, 105, 128], [0.0, 1.0, 2.0, 3.0])
    found = (2, "context of 0", "warm", 95), (3, "context of 1", "cold", 0)
    _uses(tmp_path, "context", *found)
    assert blocks_found_share(tmp_path) == 2 / 10


def test_least_recently_used_of_two_by_hand() -> None:
    """a and b are loaded, c evicts b, which was used before a; b then evicts a."""
    assert lru_misses("abacbc", 2) == 4
    assert lru_misses("abacbc", 3) == 3
    assert lru_misses("", 2) == 0


def test_misses_avoided_by_hand(tmp_path: Path) -> None:
    """Eleven adapters in turn, and the first again: an LRU of ten misses all 12 uses.

    The run has 3 of them cold or on their way. Calls began in another order than they are numbered:
    the first use of adapter 0 is the last row.
    """
    _requests(tmp_path, [8] * 12, [*range(1, 12), 0])
    names = [*range(1, 11), 0, 0]
    uses = [
        (call, f"adapter {name}", "loading" if call == 1 else "warm", 0)
        for call, name in enumerate(names)
    ]
    for cold in (0, 11):
        uses[cold] = (*uses[cold][:2], "cold", 0)
    _uses(tmp_path, "adapter", *uses)
    assert misses_avoided(tmp_path) == 1 - 3 / 12


@pytest.mark.parametrize("measure", [blocks_found_share, misses_avoided])
def test_no_figure_where_nothing_of_the_kind_is_read(tmp_path: Path, measure: object) -> None:
    _requests(tmp_path, [8], [0.0])
    _uses(tmp_path, "docker", (0, "docker of 0", "cold", 0))
    assert callable(measure)
    assert pd.isna(measure(tmp_path))
