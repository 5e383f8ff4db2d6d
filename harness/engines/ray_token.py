"""The token that a Ray cluster asks for: `RAY_AUTH_MODE=token` of those who join it.

`ray start --head` turns authentication on where its user has a token; `ray.init` with an address
does so only where the environment says it, and else tries for half a minute. Sources of the token
and their order: https://docs.ray.io/en/latest/ray-security/token-auth.html
"""

import os
import subprocess
import sys
from pathlib import Path

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"

# Only Ray's own client of the head asks once. In a process of its own: what it prints, and that it
# aborts the process where there is no token, are not the command's; modes are read once a process.
_ASK = f"""
import os, sys
from ray._raylet import Config, GcsClient
from ray.exceptions import AuthenticationError
for mode in ("disabled", "token"):
    os.environ["{MODE}"] = mode
    Config.initialize("")
    try:
        GcsClient(address=sys.argv[1])
    except AuthenticationError:
        print("refuses", mode, flush=True)
    else:
        break
"""
_ANSWERS_S = 30.0


def use_token(address: str) -> None:
    """Turn authentication on for this process where the cluster at HOST:PORT asks for a token.

    Raises ValueError where there is none, or the cluster does not take it. An address of another
    form, and a mode other than token that the environment names, are left to Ray.
    """
    address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    mode = os.environ.get(MODE, "").lower()
    if "://" in address or ":" not in address or mode not in ("", "token", "disabled"):
        return
    said = _answers(address)
    if "refuses disabled" not in said:
        return
    here = f"cluster.address={address}: the cluster"
    if mode == "disabled":
        raise ValueError(f"{here} asks for a token, and {MODE} is disabled")
    if (place := _place()) is None:
        raise ValueError(
            f"{here} asks for a token: give it in {TOKEN}, in a file that {TOKEN_PATH} names, or "
            f"as {_default()}"
        )
    if "refuses token" in said:
        raise ValueError(f"{here} does not take the token of {place}")
    os.environ[MODE] = "token"


def _default() -> Path:
    return Path.home() / ".ray" / "auth_token"


def _place() -> str | None:
    """Where Ray finds the token; None where there is none. Raises ValueError for an empty place."""
    if os.environ.get(TOKEN):
        return TOKEN
    if path := os.environ.get(TOKEN_PATH):
        if not Path(path).is_file() or not Path(path).stat().st_size:
            raise ValueError(f"{TOKEN_PATH}={path} is no file with a token")
        return path
    return str(_default()) if _default().is_file() else None


def _answers(address: str) -> list[str]:
    """What the cluster takes and refuses; empty where it does not answer as Ray does."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWERS_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    return asked.stdout.splitlines()
