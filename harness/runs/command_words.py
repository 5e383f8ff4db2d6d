"""Words of a command line, before Hydra reads them and where it cannot.

Hydra takes options from before the first key only, or after the last, and beginnings of their
names; it would load a pickled run, and by keys of its own write files elsewhere than where runs are
kept. What it cannot read it points at from a line below.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from harness.costs.model_facts import unknown_name
from harness.paths import ROOT

RERUN = "--experimental-rerun"
"""Hydra takes any beginning of it that no other option has."""

OURS_OF_HYDRA = ("hydra.searchpath",)

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("--help", "-h", "--hydra-help", "--version", "--resolve"), ()),
    **dict.fromkeys(("--run", "-r", "--multirun", "-m", "--shell-completion", "-sc"), ()),
    **dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")),
    **dict.fromkeys(("--package", "-p", "--config-path", "-cp"), ("...",)),
    **dict.fromkeys(("--config-name", "-cn", "--config-dir", "-cd"), ("...",)),
    **dict.fromkeys(
        ("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    ),
}
"""Hydra's options, and which values each has: none, these, or any (`...`)."""

_ANY = ("...",)
_NO_NAME = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?|null|true|false|nan|inf|[\[{].*", re.IGNORECASE)
_OUT_OF_PLACE = re.compile(r"(?:mismatched|extraneous) input (.+) expecting ")
_POINTER = re.compile(r"^ {27}( *)\^$", re.MULTILINE)
"""Below `LexerNoViableAltException: WORD` the place of the sign in the word."""

_SEVERAL = re.compile(r"Ambiguous value for argument '(.*)'")
_QUOTES = "'\""


def options_first(words: Sequence[str]) -> list[str]:
    """The same words, options and their values ahead of the keys, as Hydra wants them.

    Raises ValueError for an option that is none, and for a value that it cannot have.
    """
    options: list[str] = []
    keys: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            options += _option(word, rest)
        else:
            keys.append(word)
    return [*options, *keys]


def _option(word: str, rest: Iterator[str]) -> list[str]:
    """An option and the value that belongs to it, which may be the next word."""
    name, equals, value = word.partition("=")
    if RERUN.startswith(name) and name.startswith("--e"):
        raise ValueError(f"{word}: a pickled file is not read; give the command again instead")
    if name not in _OPTIONS:
        raise ValueError(f"{shown(word)}: {unknown_name('option', name, _OPTIONS)}")
    known = _OPTIONS[name]
    if not known:
        if equals:
            raise ValueError(f"{shown(word)}: {name} has no value")
        return [word]
    value = value if equals else next(rest, "")
    if not value or (known != _ANY and value not in known):
        said = "it needs a value" if known == _ANY else f"it is one of {', '.join(known)}"
        raise ValueError(f"{name} {shown(value)}: {said}")
    return [name, value]


def refuse_words(words: Sequence[str]) -> None:
    """Raise ValueError for keys and values that Hydra would trip over, or heed though none should.

    It trips over files of a group in a list that are no names, and only warns of a folder that it
    does not find.
    """
    for word in words:
        if word.startswith("-"):
            continue
        key, _, value = word.lstrip("+~").partition("=")
        if not key.strip():
            raise ValueError(f"{shown(word)}: a word of the command line is KEY=VALUE or an option")
        if re.search(r"(^|@)hydra([./@:]|$)", key) and key not in OURS_OF_HYDRA:
            raise ValueError(f"{word}: of Hydra's own keys only {', '.join(OURS_OF_HYDRA)} is read")
        if key in OURS_OF_HYDRA:
            _check_places(word, value)
        if value.startswith("[") and (ROOT / "scenarios" / key.partition("@")[0]).is_dir():
            for item in value[1:].removesuffix("]").split(","):
                if _NO_NAME.fullmatch(item.strip()):
                    raise ValueError(f"{word}: {item.strip()} is no name of a file of {key}")


def _check_places(word: str, value: str) -> None:
    """Raise ValueError where files would be searched for in what is no folder."""
    if re.search(r"(?<!file)://|\$\{", value):
        raise ValueError(f"{word}: a place to search is a folder, plain or as file://FOLDER")
    if word[0] in "+~":
        raise ValueError(f"{word}: places to search are given as {OURS_OF_HYDRA[0]}=[FOLDER]")
    try:
        places = yaml.safe_load(value)
    except yaml.YAMLError:
        return  # which Hydra says better
    for place in places if isinstance(places, list) else []:
        if isinstance(place, str) and not Path(place.removeprefix("file://")).is_dir():
            raise ValueError(f"{word}: {place} is no folder")


def refuse_nowhere() -> None:
    """Raise ValueError where the folder is gone that the command is given in: Hydra asks for it."""
    try:
        Path.cwd()
    except OSError as error:
        said = f"the folder that the command is given in cannot be told: {error.strerror}"
        raise ValueError(said) from None


def shown(word: str) -> str:
    """A word as a line can hold it."""
    return word if word.strip() and word.isprintable() else repr(word)


def unread(word: str, text: str) -> str:
    """Why a word cannot be read, by what Hydra's parser says of it."""
    if "=" not in word and not word.startswith("~"):
        return f"{shown(word)}: it has no value, a word of the command line is KEY=VALUE"
    if pointer := _POINTER.search(text):
        return f"{shown(word)}: {_about_sign(word, len(pointer[1]))}"
    lines = [line.strip() for line in text.splitlines()[:-1] if line.strip()]
    said = re.sub(r"^\w+ while evaluating ", "", "; ".join(lines[1:] or lines))
    if found := _OUT_OF_PLACE.match(said):
        said = f"{found[1]} is out of place there; a text with such signs is put in quotes"
    return f"{shown(word)}: {said}"


def _about_sign(word: str, at: int) -> str:
    """What a sign that Hydra's grammar does not have at its place would need."""
    sign, key = word[at : at + 1], word.partition("=")[0]
    if at < len(key):
        return f"{sign!r} cannot be in the name of a key"
    if sign in _QUOTES:
        return f"the quote {sign} stands within a text, or is not closed"
    example = f", as in \"{key}='{sign}'\"" if sign.isprintable() else ""
    return f"{sign!r} is read only in quotes, which the shell must leave{example}"


def several(text: str) -> str | None:
    """What to do about several values of a key, where Hydra says that there are; else None."""
    found = _SEVERAL.match(text)
    return found and (
        f"{found[1]}: several values are a run each with -m, a list in [ ], or a text in quotes"
    )
