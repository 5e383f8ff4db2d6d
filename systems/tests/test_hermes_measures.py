"""Figures of Hermes' claims, worked out by hand."""

import pandas as pd
import pytest

from harness.tests.support.run_folders import run_with
from systems.hermes.measures import (
    answer_tokens_per_s,
    backlog_s,
    blocks_found_share,
    decode_ms,
    lru_misses,
    median_act_s,
    misses_avoided,
    prompt_tokens_per_s,
    prompts_share,
)


def _requests(prompt_tokens: list[int], started_s: list[float]) -> pd.DataFrame:
    rows = {"request": range(len(prompt_tokens)), "prompt_tokens": prompt_tokens}
    return pd.DataFrame({**rows, "started_s": started_s})


def _uses(backend: str, *uses: tuple[int, str, str, int]) -> pd.DataFrame:
    """Each with request, what was used, how it was found, and tokens."""
    frame = pd.DataFrame(uses, columns=pd.Index(["request", "resource", "found", "tokens"]))
    return frame.assign(backend=backend)


def test_blocks_found_by_hand() -> None:
    """Full blocks of 32: first prompts of 2 and 1, then 3 of which 2 are found, then 4 of which 0.

    The last 9 tokens of the third prompt and the 31 of what it finds are no full block.
    """
    requests = _requests([64, 40, 105, 128], [0.0, 1.0, 2.0, 3.0])
    found = (2, "context of 0", "warm", 95), (3, "context of 1", "cold", 0)
    run = run_with(requests=requests, backends=_uses("context", *found))
    assert blocks_found_share(run) == 2 / 10


def test_least_recently_used_of_two_by_hand() -> None:
    """a and b are loaded, c evicts b, which was used before a; b then evicts a."""
    assert lru_misses("abacbc", 2) == 4
    assert lru_misses("abacbc", 3) == 3
    assert lru_misses("", 2) == 0


def test_misses_avoided_by_hand() -> None:
    """Eleven adapters in turn, and the first again: an LRU of ten misses all 12 uses.

    The run has 3 of them cold or on their way. Calls began in another order than they are numbered:
    the first use of adapter 0 is the last row.
    """
    requests = _requests([8] * 12, [*range(1, 12), 0])
    names = [*range(1, 11), 0, 0]
    uses = [
        (call, f"adapter {name}", "loading" if call == 1 else "warm", 0)
        for call, name in enumerate(names)
    ]
    for cold in (0, 11):
        uses[cold] = (*uses[cold][:2], "cold", 0)
    run = run_with(requests=requests, backends=_uses("adapter", *uses))
    assert misses_avoided(run) == 1 - 3 / 12


@pytest.mark.parametrize("measure", [blocks_found_share, misses_avoided])
def test_no_figure_where_nothing_of_the_kind_is_read(measure: object) -> None:
    uses = _uses("docker", (0, "docker of 0", "cold", 0))
    assert callable(measure)
    assert pd.isna(measure(run_with(requests=_requests([8], [0.0]), backends=uses)))


def test_rates_of_a_backlog_by_hand() -> None:
    """Two groups: 6 s, in which 4 calls decode 30 times and 2 prompts of 900 tokens are computed.

    122 answer tokens: 2 x 122 / 6 per second. The iteration with 50 calls that wait is left out.
    """
    rows = [(2.0, 10, 0, 0, 4, 90, "a"), (1.0, 1, 2, 900, 0, 90, "a"), (3.0, 20, 0, 0, 4, 51, "b")]
    rows += [(9.0, 1, 1, 100, 0, 50, "b")]
    columns = ["duration_s", "iterations", "prefill_requests", "prefill_tokens"]
    columns += ["decode_requests", "waiting_requests", "group"]
    log = pd.DataFrame(rows, columns=pd.Index(columns))
    calls = pd.DataFrame({"service": ["llm", "llm", "outside"], "output_tokens": [100, 22, 9]})
    run = run_with(iterations=log, requests=calls)
    assert answer_tokens_per_s(run) == pytest.approx(2 * 122 / 6)
    assert prompt_tokens_per_s(run) == pytest.approx(2 * 900 / 6)
    assert decode_ms(run) == pytest.approx(5000 / 30)
    assert prompts_share(run) == pytest.approx(1 / 6)
    assert backlog_s(run) == pytest.approx(3.0)


def test_the_median_of_some_kinds_by_hand() -> None:
    apps = [("DM", 0.0, 9.0), ("EV", 0.0, 1.0), ("DM", 1.0, 12.0), ("CC", 2.0, 7.0)]
    columns = pd.Index(["kind", "arrived_s", "finished_s"])
    run = run_with(apps=pd.DataFrame(apps, columns=columns))
    assert median_act_s("DM")(run) == 10.0
    assert median_act_s("EV", "CC")(run) == 3.0
