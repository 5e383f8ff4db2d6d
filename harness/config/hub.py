"""Names of a hub with their revision: what a hub calls its newest may change, a commit does not."""

import re
from typing import NamedTuple

PINNED = re.compile(r"(?P<name>[^@\s]+)@(?P<revision>[0-9a-f]{40})")


class Pinned(NamedTuple):
    """A dataset or a model of a hub, and its commit."""

    name: str
    revision: str


def pinned(key: str, text: str) -> Pinned:
    """`NAME@REVISION` in its parts. Raises ValueError, naming the key, where there is no commit."""
    found = PINNED.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{key}={text} must be NAME@REVISION, the revision a commit of 40 hex digits: what a "
            "hub has under a name alone may change"
        )
    return Pinned(found["name"], found["revision"])


def model_folder(key: str, text: str) -> str:
    """Folder with a model of the hub, from the cache if it is there. ValueError names the key."""
    name, revision = pinned(key, text)
    from huggingface_hub import snapshot_download  # takes a second to import, and few need it

    try:
        return str(snapshot_download(name, revision=revision))
    except Exception as error:  # each way of not being there has its own
        raise ValueError(
            f"{key}={text} is neither cached here nor to be had from the hub "
            f"({type(error).__name__})"
        ) from error
