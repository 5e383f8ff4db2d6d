r"""Words of Hydra's command line for values of Python, whatever text is in them.

Two parsers read a text. Hydra's takes what stands between quotes as it is, but for backslashes in
front of a quote or at the end, which are doubled, and the quotes themselves, which get one more
(`QUOTED_VALUE` of its OverrideLexer.g4). OmegaConf then takes `${` for the begin of an
interpolation, unless an odd number of backslashes stands in front of it, of which it keeps half.
"""

import re
from collections.abc import Mapping

_ESCAPED = re.compile(r"[\\()\[\]{}:=, \t]")
"""Characters that a backslash makes part of a mapping's key, which cannot be quoted."""
_KEY = re.compile(rf"(?:[\w/+.$%*@?|-]|{_ESCAPED.pattern})+", re.ASCII)
_NO_TEXT = re.compile(r"null|true|false|[+-]?(?:inf|nan|[\d._]+(?:e[+-]?[\d_]+)?)", re.IGNORECASE)
"""Keys that Hydra reads as values of other types, or may."""


def word(key: str, value: object) -> str:
    """`key=value` as `harness/run.py` reads it back: the same value, of the same type.

    `value` is None, a bool, an int, a float, a text, or a list, tuple or mapping of such. `key` may
    begin with `+` or `++`. Raises ValueError for a key of a mapping that Hydra has no spelling of,
    and TypeError for a value of another type.
    """
    return f"{key}={spelled(value)}"


def spelled(value: object) -> str:
    """A value behind `=`, in a list or in a mapping of a word. Raises as `word` does."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(int(value) if isinstance(value, int) else float(value))
    if isinstance(value, str):
        return _quoted(literal(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(map(spelled, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_key(name)}:{spelled(it)}' for name, it in value.items())}}}"
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which no word can have")


def literal(value: object) -> object:
    """A value that OmegaConf resolves to `value`: no text in it is an interpolation."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {name: literal(it) for name, it in value.items()}
    return [literal(it) for it in value] if isinstance(value, list | tuple) else value


def _quoted(text: object) -> str:
    doubled = re.sub(r'(\\+)(?="|\Z)', r"\1\1", str(text))
    return '"' + doubled.replace('"', '\\"') + '"'


def _key(name: object) -> str:
    """A key of a mapping, which Hydra reads without quotes."""
    if not isinstance(name, str):
        return spelled(name)
    if not _KEY.fullmatch(name) or _NO_TEXT.fullmatch(name):
        raise ValueError(f"Hydra has no spelling of the key {name!r:.60}")
    return _ESCAPED.sub(r"\\\g<0>", name)
