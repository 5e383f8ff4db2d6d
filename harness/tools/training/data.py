"""Prompts with the length of their answer, and their division into three splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness.predictors.proxy_card import sha256
from harness.workloads.prompts import token_counts
from harness.workloads.text_prompts import TEXT, text_rows

PROMPTS = ("alpaca/prompts", "gpteacher/prompts", "no_robots/test_prompts", "alpaca_eval/prompts")
LENGTHS = "alpaca_eval/lengths"  # of many models; ours is the one that also answered `alpaca`
ANSWERS_OF = "text_davinci_003"
LEAST_TOKENS, MOST_TOKENS = 2, 511  # arXiv 2404.08509 sec. 4.3, note on data processing
SHARES = (0.6, 0.2, 0.2)  # its program


@dataclass(frozen=True, slots=True)
class Splits:
    """Rows (`prompt`, `tokens`, `prompt_tokens`, `source`) to learn from, to choose by, to judge.

    No prompt is in two of them, whatever its case and spacing. `files` are the sha256 of the data.
    """

    train: pd.DataFrame
    validation: pd.DataFrame
    test: pd.DataFrame
    files: Mapping[str, str]

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each."""
        return {name: len(getattr(self, name)) for name in ("train", "validation", "test")}


def read_rows(data: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Every prompt with its answer's tokens, and the sha256 of the files.

    Raises ValueError for a missing or damaged file.
    """
    paths = {name: data / f"{name}.parquet" for name in (*PROMPTS, LENGTHS)}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise ValueError(f"there is no {missing[0]}.parquet in the data folder {str(data)!r}")
    try:
        tables = {name: pd.read_parquet(path) for name, path in paths.items()}
        lengths = tables[LENGTHS]
        of_model = lengths[lengths["model"] == ANSWERS_OF].set_index("prompt_id")["output_tokens"]
        last = tables[PROMPTS[-1]]
        tables[PROMPTS[-1]] = last.assign(response_tokens=last["prompt_id"].map(of_model))
        parts = [
            pd.DataFrame(
                {
                    "prompt": tables[name]["prompt"].astype(str),
                    "tokens": tables[name]["response_tokens"],
                    "prompt_tokens": tables[name]["prompt_tokens"],
                    "source": name.partition("/")[0],
                }
            )
            for name in PROMPTS
        ]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"the data in {str(data)!r} cannot be read: {error}") from error
    files = {f"{name}.parquet": sha256(path) for name, path in paths.items()}
    return pd.concat(parts, ignore_index=True).dropna(subset=["tokens"]), files


def read_prompts(path: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """The same of a user's own file: columns as `harness.workloads.text_prompts` reads them.

    Raises ValueError for a file that is missing or damaged.
    """
    if not path.is_file():
        raise ValueError(f"--prompts={path} is no file")
    rows, tokens = text_rows(path)
    found = pd.DataFrame(
        {
            "prompt": rows[TEXT],
            "tokens": tokens,
            "prompt_tokens": token_counts(str(path), rows),
            "source": path.stem,
        }
    )
    return found, {path.name: sha256(path)}


def split_rows(
    rows: pd.DataFrame, files: Mapping[str, str], *, seed: int, most_rows: int | None
) -> Splits:
    """Three splits in a random order of the prompts; answers of 2 to 511 tokens only."""
    kept = rows[rows["tokens"].between(LEAST_TOKENS, MOST_TOKENS)]
    same = kept["prompt"].map(lambda text: " ".join(text.casefold().split()))
    kept = kept[~same.duplicated() & (same != "")].astype({"tokens": np.int64})
    order = np.random.default_rng([seed, 10]).permutation(len(kept))[:most_rows]
    ends = np.rint(np.cumsum((0.0, *SHARES)) * len(order)).astype(int)
    train, validation, test = (
        kept.iloc[order[ends[i] : ends[i + 1]]].reset_index(drop=True) for i in range(3)
    )
    return Splits(train, validation, test, files)


def texts(rows: pd.DataFrame) -> Sequence[str]:
    """The prompts of a split."""
    return [str(text) for text in rows["prompt"]]
