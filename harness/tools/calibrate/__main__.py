"""Measures a model on the vLLM at hand: `python -m harness.tools.calibrate --model tiny`.

Runs designed batches several times over, in turn, after a warm-up, through the loop that serves
real runs. Every repetition is kept beside the profile that is fitted to their means; `--refit` fits
stored repetitions again and measures nothing.
"""

import argparse
import json
import sys
from pathlib import Path

from harness.config.paths import PROFILES
from harness.costs.asked_gpu import GIVEN, facts_of, keep_facts
from harness.costs.profiles import CALIBRATION
from harness.tools.calibrate import raw
from harness.tools.calibrate.stored import profile, residuals


def refit(measured: Path) -> Path:
    """The profile of stored repetitions, written beside them. Raises ValueError for no such file.

    Whatever was not measured follows the roofline that all folders share, or one beside the profile
    where blocks of this engine have another size.
    """
    rows, facts = raw.read(measured)
    path = measured.with_suffix(".json")
    content = profile(rows, facts)
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    roofline = json.loads((PROFILES / "roofline" / CALIBRATION).read_text(encoding="utf-8"))
    own = measured.with_name(CALIBRATION)
    if roofline["block_tokens"] != facts["block_tokens"] or own.is_file():
        roofline["block_tokens"] = facts["block_tokens"]
        text = json.dumps(roofline, sort_keys=True, indent=1) + "\n"
        own.write_text(text, encoding="utf-8")
    title = f"{measured.stem}, {facts['engine']}"
    residuals(rows, facts, title).savefig(measured.with_suffix(".png"), dpi=110)
    return path


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.tools.calibrate", description=__doc__)
    add = parser.add_argument
    add("--model", nargs="+", default=["tiny"], help="names, or configs")
    add("--gpu", default="CPU", help="what it runs on; in gpus.json or any name")
    for fact in GIVEN:
        add(f"--gpu-{fact.replace('_', '-')}", type=float)
    add("--out", type=Path, default=PROFILES / "cpu_vllm", help="profile folder")
    add("--repeats", type=int, default=5)
    add("--kv-blocks", type=int, default=400, help="0 leaves it to vLLM")
    add("--most-requests", type=int, default=128, help="at once")
    add("--most-s", type=float, default=480.0, help="no repetition begins that would end later")
    add("--refit", action="store_true", help="fit what is stored in --out, measure nothing")
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace) -> None:
    """Measure what the command line names."""
    # What measures needs vLLM; a fit of what is stored does not.
    from harness.costs.nvml import open_nvml
    from harness.tools.calibrate.model import calibrate, engine

    said = {fact: getattr(options, f"gpu_{fact}") for fact in GIVEN}
    facts = facts_of(options.gpu, said, open_nvml())
    on = engine(options.kv_blocks or None)
    options.out.mkdir(parents=True, exist_ok=True)
    for model in options.model:
        stem, rows, about = calibrate(model, on, options)
        raw.write(options.out / f"{stem}.parquet", rows, about)
        print(f"wrote {refit(options.out / f'{stem}.parquet')}")
    keep_facts(options.out, facts)


def main(arguments: list[str] | None = None) -> int:
    """Measure or fit what the command line names; returns the exit status."""
    options = _options(arguments)
    try:
        if options.refit:
            for measured in sorted(options.out.glob("*.parquet")) or [options.out / "*.parquet"]:
                print(f"wrote {refit(measured)}")
        else:
            _measure(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
