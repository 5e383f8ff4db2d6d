"""Bad inputs: words and files made from right ones by a mutation, the same for the same seed.

Some are marked: nothing that they say can be meant, so they must be refused. Of the others, drawn
blindly, some happen to be right; those may be accepted.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from harness.costs.profiles import CALIBRATION
from harness.paths import PROFILES

BASE = (
    "policy=fcfs_continuous",
    "hardware.gpu_count=1",
    "workload.requests=20",
    "workers=1",
    "tracking=none",
)
PROFILE, MODEL = "a100_80g_vllm_0_3", "vicuna-13b-v1.5"
HERE = "HERE"
"""Stands for the case's own folder in its words and files."""

WRITTEN = "written"
"""A file in that folder that only code from a configuration would make."""


@dataclass(frozen=True, slots=True)
class Case:
    """Words of a command line, and the files that they name."""

    kind: str
    words: Sequence[str]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    is_marked: bool = False


CODE = f"{{_target_:logging.FileHandler,filename:{HERE}/{WRITTEN},mode:w}}"
NO_NUMBERS = ("nan", "inf", "-inf", "x", "null", "[]", "{a:1}", "1e300", "-1", "1" + "0" * 30, CODE)
ANYTHING = (*NO_NUMBERS, "0", "true", "''", "[1]", "1e-300", "../x", "${nope}", "a" * 300, "1:30")

NUMBERS: Mapping[str, Sequence[str]] = {
    "": ("seed", "workers", "uncertainty_draws"),
    "workload=chats": (
        "hardware.gpu_count",
        "hardware.memory_share",
        "hardware.replica_start_s",
        "hardware.host_kv_bytes",
        "workload.requests",
        "workload.max_output_tokens",
        "workload.starts_s",
        "workload.arrivals.rate_per_s",
        "workload.arrivals.burstiness",
        "policy.rule.max_num_seqs",
        "policy.rule.max_num_batched_tokens",
        "policy.rule.max_padding_tokens",
        "policy.rule.watermark",
    ),
    "workload=synthetic hardware=cpu": (
        "workload.burstiness",
        "workload.prompt_median_tokens",
        "workload.prompt_sigma",
        "workload.output_sigma",
        "workload.max_prompt_tokens",
    ),
    "predictor=pairwise": ("predictor.accuracy", "predictor.latency_s", "predictor.window"),
    "predictor=noisy": ("predictor.accuracy", "predictor.rank_correlation", "predictor.latency_s"),
    "workload/arrivals=azure_functions": (
        "workload.arrivals.functions",
        "workload.arrivals.rate_per_s",
    ),
}
"""Words that bring keys, and those keys that hold numbers; each is 0 or more."""

OTHERS = (
    *("engine", "hardware", "workload", "policy", "predictor", "system", "matrix", "skip", "vary"),
    *("vary_at", "compare", "shows", "record", "name", "variant", "tracking"),
    *("workload.model", "workload.lengths", "workload.arrivals", "policy.rule", "engine._target_"),
    *("workload._target_", "policy._target_", "system.dispatch", "system.placement"),
    *("hardware.gpu", "hardware.profile", "record.trace", "system.name", "policy.rule._target_"),
)
"""Keys of all other kinds."""

NEEDED = ("matrix", "skip", "vary", "vary_at", "compare", "shows", "record", "name", "tracking")
"""Without one of these there is no configuration."""


def of_command(rng: Random) -> Case:
    """A key of the command line with a value that it cannot have, or with any."""
    if rng.random() < 0.6:
        words = rng.choice(list(NUMBERS))
        key = rng.choice(NUMBERS[words])
        return Case("key", (*words.split(), f"{key}={rng.choice(NO_NUMBERS)}"), is_marked=True)
    key, value = rng.choice(OTHERS), rng.choice(ANYTHING)
    if rng.random() < 0.2:
        return Case("key", (f"~{key}",), is_marked=key in NEEDED)
    if rng.random() < 0.3:
        inside = rng.choice(("_args_", "_partial_", "_recursive_", "typo", "a.b"))
        return Case("key", (f"+{key}.{inside}={value}",), is_marked=value == CODE)
    return Case("key", (f"{key}={value}",), is_marked=value == CODE)


SCENARIO = """# @package _global_
defaults: [override /workload: chats]
name: tried
policy: {rule: {max_num_seqs: 8}}
hardware: {gpu_count: 1}
matrix: {seed: [0, 1]}
shows: [inference_s]
expected_minutes: 0.1
"""
_LINKS = zip("abcdefgh", "bcdefghi", strict=True)
BOMB = "\n".join(
    ["bomb:", " a: &a [1,1,1,1,1,1,1,1,1]"]
    + [f" {name}: &{name} [{','.join([f'*{of}'] * 9)}]" for of, name in _LINKS]
)
TWICE = "seed: 1\nseed: 2"
BAD_LINES = (
    "name:\ttab\n\tname: x",
    TWICE,
    "name: [open",
    "shows: !tag x",
    "hardware: {gpu_count: x}",
    "hardware: 5",
    "matrix: 5",
    "hardwear: {gpu_count: 1}",
    "seed: 1:30",
    "shows: " + "[" * 3000 + "]" * 3000,
    "matrix: &loop {seed: *loop}",
    "defaults: 5",
    "defaults: [case]",
    "seed: ${no.such.key}",
    "seed: !!python/object/apply:os.getpid []",
    "workload: {_target_: os.system}",
    f"workload: {{prompt_tokens: {{_target_: logging.FileHandler, filename: {HERE}/{WRITTEN}}}}}",
    "- a list",
    "? [a, b]\n: c",
    BOMB,
)
"""Each makes of the scenario one that must be refused, wherever it stands at its top."""


def of_scenario(rng: Random) -> Case:
    """A scenario file with a bad line, or with characters changed blindly."""
    is_marked = rng.random() < 0.7
    text = _with_line(rng.choice(BAD_LINES)) if is_marked else _scrambled(SCENARIO, rng)
    words = (f"hydra.searchpath=[file://{HERE}/conf]", "+scenario=case")
    return Case("scenario", words, {"conf/scenario/case.yaml": text}, is_marked=is_marked)


def _with_line(line: str) -> str:
    """The scenario with this line in the place of the one that has its key."""
    key = line.partition(":")[0]
    kept = [other for other in SCENARIO.splitlines() if not other.startswith(f"{key}:")]
    return "\n".join([*kept, line, ""])


def _scrambled(text: str, rng: Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        put = rng.choice(("", " ", "\t", ":", "{", "]", "'", "\\", "&", "*", "\n", "#", "é", "0"))
        text = text[:at] + put + text[at + rng.randint(0, 3) :]
    return text


ROWS = [{"prompt_tokens": 20 + number, "response_tokens": 5 + number} for number in range(30)]
BAD_COUNTS = (-1, 0, 1.5, "x", None, 1e300, [1], {"a": 1}, True, 10**30, float("nan"))
BAD_FILES = (
    "",
    "\n\n",
    "5\n",
    '{"prompt_tokens": 5\n',
    '{"other": 5}\n',
    "[" * 100_000,
    '{"prompt": "half \\ud800"}\n',
    b"\xff\xfe\x00\x01",
    b"\x00" * 100,
)


def of_trace(rng: Random) -> Case:
    """A file of prompts with a bad row, or none that can be read."""
    name = rng.choice(("trace.jsonl", "trace.csv", "trace.parquet"))
    words = ("workload=mixinstruct", f"workload.source={HERE}/{name}", "system=max_heuristic")
    if name == "trace.parquet" or rng.random() < 0.4:
        return Case("trace", words, {name: rng.choice(BAD_FILES)}, is_marked=True)
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    rng.choice(rows)["prompt_tokens"] = rng.choice(BAD_COUNTS)
    text = "\n".join(json.dumps(row) for row in rows)
    if name == "trace.csv":
        text = "\n".join(["prompt_tokens", *(f'"{row["prompt_tokens"]}"' for row in rows)])
    return Case("trace", words, {name: text + "\n"}, is_marked=True)


BAD_NUMBERS: Sequence[object] = (
    -1.0,
    float("nan"),
    float("inf"),
    "x",
    None,
    [],
    {},
    1e300,
    "1",
    True,
)


def of_profile(rng: Random) -> Case:
    """A folder of costs of which a file has a bad number, key or end."""
    names = (f"{MODEL}.json", CALIBRATION)
    texts = {name: (PROFILES / PROFILE / name).read_text(encoding="utf-8") for name in names}
    name = rng.choice(names)
    texts[name] = rng.choice(_PROFILES)(texts[name], rng)
    files = {f"profile/{name}": text for name, text in texts.items()}
    words = (f"hardware.profile={HERE}/profile", f"workload.model={MODEL}")
    return Case("profile", words, files, is_marked=True)


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every number of a file: the list or mapping that holds it, and where in there."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            yield from _leaves(value)
        elif isinstance(value, int | float) and key not in ("rows", "record"):
            yield node, key


def _with_bad_number(text: str, rng: Random) -> str:
    content = json.loads(text)
    read = [key for key in content if key not in ("tried", "choice")]
    # What lies on top is changed in the file itself, not in a part of it.
    places = [(content, key) for key in read if isinstance(content[key], int | float)]
    below = (content[key] for key in read if isinstance(content[key], dict | list))
    holder, key = rng.choice([*places, *(leaf for part in below for leaf in _leaves(part))])
    values = [it for it in BAD_NUMBERS if not (isinstance(it, float) and key == "step_s")]
    holder[key] = rng.choice(values)
    return json.dumps(content)


def _without_end(text: str, rng: Random) -> str:
    return text[: rng.randrange(len(text.rstrip()) - 1)]


def _with_misspelt_key(text: str, rng: Random) -> str:
    content = json.loads(text)
    key = rng.choice([key for key in content if key not in ("tried", "choice")])
    return json.dumps({f"{name}x" if name == key else name: it for name, it in content.items()})


def _with_knots_turned(text: str, _: Random) -> str:
    content = json.loads(text)
    return json.dumps(content | {"knots_requests": content["knots_requests"][::-1]})


def _of_others(text: str, rng: Random) -> str:
    """Of a GPU or a model that nobody asked for; a calibration is of neither."""
    key = rng.choice(("gpu", "model"))
    return json.dumps({**json.loads(text), key: "Nobody-80G"})


_PROFILES: Sequence[Callable[[str, Random], str]] = (
    _with_bad_number,
    _with_bad_number,
    _with_bad_number,
    _without_end,
    _with_misspelt_key,
    _with_knots_turned,
    _of_others,
)
KINDS = (of_command, of_command, of_scenario, of_trace, of_profile)


def case_of(seed: int, number: int) -> Case:
    """Case `number` of a seed."""
    rng = Random(f"{seed} {number}")
    return KINDS[number % len(KINDS)](rng)


def write_case(case: Case, folder: Path) -> list[str]:
    """Write a case's files below a folder; the words of its command line."""
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content.replace(HERE, str(folder)), encoding="utf-8")
    words = (word.replace(HERE, str(folder)) for word in case.words)
    return [*BASE, f"results={folder}/results", *words]
