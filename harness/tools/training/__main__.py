"""Trains the heads of a proxy model: `python -m harness.tools.training`.

    python -m harness.tools.training --prompts FILE [--minutes 5] [--heads reg_l1]

FILE is parquet, CSV or JSONL with the columns `prompt` (a text, or the turns of a conversation as a
list), `response_tokens` (of the answer) and, if it is known, `prompt_tokens`. Without --prompts
the project's own data are read, which an installed project does not have. Each head becomes a
checkpoint below --out, where predictor=proxy finds it, and its errors on prompts that were not
trained on a table for `predictor=empirical`. Checkpoints are never tracked; tables and summary go
below results/local, or with --publish to where they are read and shown.

What arXiv 2404.08509 (sections 3.1 and 4.3) and its program do otherwise: BERT-base (--base; ours
has six layers); one encoder per head (--separate; ours share that of the first phase); up to a
million rows of LMSYS-Chat-1M; six epochs, the first three of all weights (ours end by --minutes,
--epochs and the validation loss); rates of 1e-5 and then 1e-4 (ours 1e-4 for the encoder and 5e-4
for heads, then 1e-3); batches of 16 (ours 32); 512 tokens in both phases (ours learns from the last
128 in the first, and predicts from 512); the name of the model that answers, one-hot (ours has
none); a pair of prompts read as one text (ours scores each alone and compares the scores).

The first phase takes at most 60% of --minutes, and with --separate each head has its share of that.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.config.paths import PROFILES
from harness.predictors.proxy_card import LIBRARIES, require
from harness.runs import published
from harness.runs.provenance import machine
from harness.tools.fitting.lengths import MEASURED_HERE, counted

if TYPE_CHECKING:
    from harness.tools.training.data import Splits

FIRST_PHASE_SHARE = 0.6
HEADS = ("reg_l1", "reg_mse", "cls", "ord_l1", "ord_mse", "bin", "pair")


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.tools.training", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="prompts")
    parser.add_argument("--prompts", type=Path, default=None, help="your own, instead of --data")
    bases = "minilm, scratch, a folder or NAME@REVISION of a hub"
    parser.add_argument("--base", default="minilm", help=bases)
    parser.add_argument("--heads", nargs="+", default=list(HEADS), metavar="HEAD")
    parser.add_argument("--separate", action="store_true", help="an encoder for every head")
    parser.add_argument("--minutes", type=float, default=14.0, help="of all, about")
    parser.add_argument("--epochs", type=int, default=2, help="at most, of the first phase")
    parser.add_argument("--rows", type=int, default=None, help="at most, of all splits")
    parser.add_argument("--threads", type=int, default=1, help="more are slower beside others")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="for everything but the tables, instead")
    parser.add_argument("--profiles", type=Path, help="for the tables, instead")
    published.add_publish(parser)
    options = parser.parse_args(arguments)
    publish = options.publish
    if publish and options.prompts:
        print("error: --publish is of the project's own data, not of --prompts", file=sys.stderr)
        return 2
    summary = options.out or published.place("predictors", publish=publish)
    options.out = options.out or published.RESULTS / "predictors"
    options.profiles = options.profiles or (
        PROFILES if publish else published.place("profiles", publish=False)
    )
    try:
        _check(options)
        content = _trained(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    published.write(summary / "summary.json", text)
    _keep(options.profiles / "derived" / f"{MEASURED_HERE}heads.json", heads_table(content))
    _show(content)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raises ValueError for options that mean nothing, and missing libraries."""
    unknown = [name for name in options.heads if name not in HEADS]
    if unknown:
        raise ValueError(f"there is no head {unknown[0]}; there are {', '.join(HEADS)}")
    for name in ("minutes", "epochs", "threads", "rows"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise ValueError(f"--{name} is {value}, it must be positive")
    require((*LIBRARIES, "sklearn"))


def _trained(options: argparse.Namespace) -> dict[str, Any]:
    """The summary of all heads and baselines."""
    # here because they are missing where the libraries are, of which a sentence tells
    import torch

    from harness.predictors.proxy_heads import lengths_of
    from harness.tools.training.data import read_prompts, read_rows, split_rows
    from harness.tools.training.runs import TIMED, TrainingPlan, run
    from harness.tools.training.scores import baselines
    from harness.tools.training.training import TrainingSettings

    started_s, own = time.monotonic(), options.prompts
    torch.set_num_threads(options.threads)
    rows, files = read_prompts(own) if own else read_rows(options.data)
    splits = split_rows(rows, files, seed=options.seed, most_rows=options.rows)
    encoders = len(options.heads) if options.separate else 1
    most_s = options.minutes * 60 * FIRST_PHASE_SHARE / encoders
    settings = TrainingSettings(epochs=options.epochs, most_s=most_s, seed=options.seed)
    given = {name: getattr(options, name) for name in ("base", "heads", "separate", "out")}
    plan = TrainingPlan(**given, settings=settings, profiles=options.profiles / "predictors")
    lengths = lengths_of(splits.train["tokens"].to_numpy())
    heads = list(run(splits, plan))
    _keep(options.profiles / "lengths" / f"{MEASURED_HERE}test.json", lengths_table(splits))
    return {
        "heads": heads,
        "baselines": list(baselines(splits, lengths, TIMED, options.seed)),
        "base": options.base,
        "shared_encoder": len(options.heads) > 1 and not options.separate,
        "class_bounds_tokens": list(lengths.class_bounds_tokens),
        "data": files,
        "split": splits.sizes,
        "seed": options.seed,
        "threads": options.threads,
        "minutes": round((time.monotonic() - started_s) / 60, 2),
        "machine": machine(),
    }


def _keep(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def heads_table(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy of every head, in the form that claims read."""
    kept = ("name", "accuracy", "macro_f1", "mae_tokens", "spearman")
    rows = [{key: head[key] for key in kept} for head in summary["heads"]]
    datasets = ", ".join(sorted({file.partition("/")[0] for file in summary["data"]}))
    return {
        "about": f"heads on base {summary['base']}, {summary['split']['test']} test prompts",
        "source": f"python -m harness.tools.training on {datasets}",
        "rows": rows,
    }


def lengths_table(splits: "Splits") -> dict[str, Any]:
    """Lengths of the answers to the test prompts, on which the heads' errors were measured."""
    kind = "answers to the prompts that length predictors were tested on"
    return counted(splits.test["tokens"], kind, f"test split of {', '.join(sorted(splits.files))}")


def _show(content: dict[str, Any]) -> None:
    rows = pd.json_normalize([*content["heads"], *content["baselines"]]).set_index("name")
    names = ["classes", "accuracy", "macro_f1", "mae_tokens", "spearman"]
    print(f"{content['split']['test']} test prompts, {content['minutes']} minutes")
    print(rows[[*names, "latency_s.mean", "latency_s.p99"]].rename_axis(None).to_string())


if __name__ == "__main__":
    sys.exit(main())
