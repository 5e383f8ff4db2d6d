"""A paper's claims as its file has them: results/claims/<paper>.yaml, `blocks` and `claims`.

Of a claim

    id            <paper>.<place>.<what>
    quote         the paper's own words, short
    where         the place in the paper
    quantity      what is claimed, in words
    setting       the setting that the paper states, in words
    kind          speedup | gain | reduction | value | bound | shape: how the paper puts it
    paper         the figure, or [smallest, largest], as printed; words where kind is shape
    note          what a reader must know besides
    open          what the paper leaves open and matters: a list of {key, values, source}; empty
                  where nothing is, or nothing that could be run otherwise, which a note then says
    check         how it is tested, or a list of such, which must all hold: `harness.claims.checks`.
                  With it come `quote` and `open`

or instead of `check`

    input         why the figure is none of ours: it is fed in
    not_testable  which data or hardware would be needed

An open choice: `key` is a key of the configuration (or a column of a table), the first of `values`
is what the stated setting has, `source` where the values come from. Where `key` is one of a check's
settings, each of `values` is a list: what the check's figure is taken over. Where it is not known
how a figure is to be read, rather than how it was run, `key` is `reading.WHAT` and `checks` has the
words of a check that each further value changes: {value: words}. A check may be made of
`blocks` by `use: NAME`, or `use: [NAME, NAME]`: their words are put together, a later one's before
an earlier one's and the check's own before all. A block uses no other block.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness.claims.checks import Check, doubled, read_check
from harness.costs.model_facts import unknown_name
from harness.yaml_files import read_yaml

Words = Mapping[str, Any]

KINDS = ("speedup", "gain", "reduction", "value", "bound", "shape")
COLUMN = "config."
READING = "reading."


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A choice that a paper leaves open; the first value is the stated setting's."""

    key: str
    values: Sequence[Any]
    source: str
    checks: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim; the module says what each field means."""

    id: str
    where: str
    quantity: str
    kind: str
    paper: Any
    quote: str = ""
    setting: str = ""
    note: str = ""
    open: Sequence[Open] = ()
    checks: Sequence[Check] = ()
    input: str = ""
    not_testable: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What the paper says."""
        names = ("id", "quote", "where", "quantity", "setting", "kind", "paper")
        return {name: getattr(self, name) for name in names}

    def of(self, variant: str) -> "Claim":
        """The claim as it is tested on runs of a variant; a program leaves nothing open."""
        if variant == "paper":
            return self
        checks = [replace(check, **check.code) for check in self.checks]
        return replace(self, open=(), checks=checks)


WORDS = [one.name for one in fields(Claim) if one.name != "checks"] + ["check"]
TEXTS = ("id", "quote", "where", "quantity", "setting", "note", "input", "not_testable")
NEEDED = ("id", "where", "quantity", "kind", "paper")
INSTEAD = ("check", "input", "not_testable")


def read_claims(path: Path) -> list[Claim]:
    """The claims of a paper. ValueError, one sentence, where the file is absent or says wrong."""
    if not path.is_file():
        raise ValueError(f"there are no claims at {path}")
    content = read_yaml(path)
    try:
        return claims_of(content)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def claims_of(content: object) -> list[Claim]:
    """The claims of a file's content. Raises ValueError for a word or a value it may not have."""
    if not isinstance(content, Mapping) or not isinstance(content.get("claims"), list):
        raise ValueError("claims is missing, a list")
    _known("key of the file", content, ("blocks", "claims"))
    blocks = content.get("blocks", {})
    if not isinstance(blocks, Mapping):
        raise ValueError(f"blocks={blocks} is not blocks by name")
    for name, block in blocks.items():
        if not isinstance(block, Mapping):
            raise ValueError(f"blocks.{name}={block} is not words of a check")
        if "use" in block:
            raise ValueError(f"blocks.{name} uses {block['use']}, but a block uses no other")
        _refuse_endless(f"blocks.{name}", block)
    claims = []
    for raw in content["claims"]:
        if not isinstance(raw, Mapping):
            raise ValueError(f"{raw} is no claim")
        try:
            claims.append(_claim(raw, blocks))
        except ValueError as error:
            raise ValueError(f"{raw.get('id', 'a claim without id')}: {error}") from error
    if twice := doubled([one.id for one in claims]):
        raise ValueError(f"{twice[0]} is there twice")
    return claims


def _refuse_endless(path: str, said: object) -> None:
    """Raise ValueError for a number that is none: nothing is equal to it, or within it."""
    if isinstance(said, Mapping):
        for name, inside in said.items():
            _refuse_endless(f"{path}.{name}".lstrip("."), inside)
    elif isinstance(said, list):
        for place, inside in enumerate(said):
            _refuse_endless(f"{path}[{place}]", inside)
    elif isinstance(said, float) and not math.isfinite(said):
        raise ValueError(f"{path}={said} is not a finite number")


def _claim(raw: Words, blocks: Mapping[str, Words]) -> Claim:
    _known("word of a claim", raw, WORDS)
    _refuse_endless("", raw)
    if absent := [name for name in NEEDED if name not in raw]:
        raise ValueError(f"{absent[0]} is missing")
    for name in TEXTS:
        if name in raw and not (isinstance(raw[name], str) and raw[name]):
            raise ValueError(f"{name}={raw[name]} is not a text")
    if raw["kind"] not in KINDS:
        raise ValueError(f"kind={raw['kind']} is none of {', '.join(KINDS)}")
    given = [name for name in INSTEAD if name in raw]
    if len(given) != 1:
        raise ValueError(f"one of {', '.join(INSTEAD)} is needed, not {len(given)}")
    if "check" in raw and (absent := [name for name in ("quote", "open") if name not in raw]):
        raise ValueError(f"{absent[0]} is missing beside check")
    listed = raw.get("check", [])
    if "check" in raw and not listed:
        raise ValueError(f"check={listed} is not words of a check")
    figure = {} if raw["kind"] == "shape" else {"paper": raw["paper"]}
    checks = [
        read_check(figure | used(words, blocks))
        for words in (listed if isinstance(listed, list) else [listed])
    ]
    opened = [_open(one, blocks) for one in _list_of(raw, "open")]
    if twice := doubled([one.key for one in opened]):
        raise ValueError(f"open.{twice[0]} is there twice")
    _bearing(opened, checks)
    plain = {name: raw[name] for name in WORDS if name in raw and name not in ("check", "open")}
    return Claim(**plain, open=opened, checks=checks)


def used(words: object, blocks: Mapping[str, Words]) -> dict[str, Any]:
    """The words of a check, with those of the blocks that it uses, and of its code likewise.

    Raises ValueError for no such block, and for code that has code.
    """
    whole = _put_together(words, blocks)
    if "code" in whole:
        code = _put_together(whole["code"], blocks)
        if "code" in code:
            raise ValueError(f"code={whole['code']} has a code of its own")
        whole["code"] = code
    return whole


def _put_together(words: object, blocks: Mapping[str, Words]) -> dict[str, Any]:
    if not isinstance(words, Mapping):
        raise ValueError(f"check={words} is not words of a check")
    names = words.get("use", [])
    whole: dict[str, Any] = {}
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or name not in blocks:
            raise ValueError(f"use={name}: {unknown_name('block', str(name), blocks)}")
        whole |= blocks[name]
    return whole | {key: value for key, value in words.items() if key != "use"}


def _open(raw: object, blocks: Mapping[str, Words]) -> Open:
    names = [one.name for one in fields(Open)]
    if not isinstance(raw, Mapping):
        raise ValueError(f"open holds {raw}, which is not {{{', '.join(names)}}}")
    _known("word of an open choice", raw, names)
    if absent := [name for name in ("key", "values", "source") if name not in raw]:
        raise ValueError(f"open.{raw.get('key', '')} has no {absent[0]}")
    values = raw["values"]
    if not isinstance(raw["key"], str) or not raw["key"]:
        raise ValueError(f"open.key={raw['key']} is not a text")
    if not isinstance(values, list) or not values:
        raise ValueError(f"open.{raw['key']}.values={values} is not a list of values")
    if any(isinstance(value, Mapping) for value in values):
        raise ValueError(f"open.{raw['key']}.values={values} holds what is no single value")
    if doubled(values):
        raise ValueError(f"open.{raw['key']}.values={values} has one twice")
    if not isinstance(raw["source"], str) or not raw["source"]:
        raise ValueError(f"open.{raw['key']}.source={raw['source']} is not a text")
    if raw["key"].startswith(COLUMN):
        raise ValueError(f"open.{raw['key']} is a key of the configuration, without {COLUMN}")
    return Open(**{**raw, "checks": _readings(raw, blocks)})


def _readings(raw: Words, blocks: Mapping[str, Words]) -> dict[Any, dict[str, Any]]:
    """What each further value of a reading changes in the checks; nothing for another choice."""
    values = raw["values"]
    if raw["key"].startswith(READING) and any(isinstance(value, list) for value in values):
        raise ValueError(f"open.{raw['key']}.values={values} holds what is no name of a reading")
    read = raw.get("checks", {})
    is_reading, others = raw["key"].startswith(READING), values[1:] if read else []
    if is_reading != bool(read) or not isinstance(read, Mapping) or set(read) != set(others):
        raise ValueError(
            f"open.{raw['key']}: a {READING}... has checks with the words of each further value"
        )
    return {value: used(words, blocks) for value, words in read.items()}


def _bearing(opened: Sequence[Open], checks: Sequence[Check]) -> None:
    """Raise ValueError for a choice that no check heeds, or that every one has made already."""
    for one in opened:
        for value, words in one.checks.items():
            if all(check.read(words) == check for check in checks):
                raise ValueError(f"open.{one.key}: {value} changes nothing of any check")
        ranges = all(isinstance(value, list) for value in one.values)
        if ranges and any(COLUMN + one.key in check.settings for check in checks):
            continue
        if checks and all(check.fixes(COLUMN + one.key) for check in checks):
            raise ValueError(f"open.{one.key} decides nothing: every check names it itself")


def _list_of(raw: Words, name: str) -> list[Any]:
    found = raw.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"{name}={found} is not a list")
    return found


def _known(what: str, given: Words, known: Sequence[str]) -> None:
    for word, value in given.items():
        if word not in known:
            said = unknown_name(what, str(word), dict.fromkeys(known))
            raise ValueError(f"{word}={value}: {said}")
