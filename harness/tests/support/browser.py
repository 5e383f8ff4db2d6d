"""Chromium without a window, driven over a pipe by its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--remote-debugging-pipe", "--hide-scrollbars"),
)
KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "/": 191, "ArrowRight": 39}


def program() -> str | None:
    """Path of a Chromium on this machine; None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page. `problems` has console errors, exceptions and requests beyond the first file."""

    def __init__(self, to: int, back: int) -> None:
        """`to` and `back` are the ends of the pipes that the browser reads and writes."""
        self._to, self._back, self._rest, self._number = to, back, b"", 0
        self._session = ""
        self.problems: list[str] = []
        self.requested: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> Any:
        """The answer to a command. RuntimeError where the browser refuses it."""
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": given}
        if self._session:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            self._note(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._back, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        """Keep what went wrong and what was asked for."""
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.problems.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    def open(self, path: Path) -> None:
        """Show a file, and wait until it has loaded."""
        self.call("Page.navigate", url=path.as_uri())
        while self.run("location.protocol + document.readyState") != "file:complete":
            pass

    def size(self, width: int, height: int, *, scheme: str = "light", media: str = "") -> None:
        """Size in pixels, colour scheme and medium (`print`) that the page sees."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def run(self, script: str) -> Any:
        """Value of an expression in the page; promises are awaited. RuntimeError if it throws."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: one of KEYS."""
        code = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"Enter": "\r", "/": "/"}.get(key)
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        """Type text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own; it ends with the block. RuntimeError without one."""
    path = program()
    if path is None:
        raise RuntimeError("there is no Chromium on this machine")
    (theirs_in, to), (back, theirs_out) = os.pipe(), os.pipe()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # The browser reads descriptor 3 and writes descriptor 4.
        pipes = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        shell = ["bash", "-c", pipes, "browser", *words]
        process = subprocess.Popen(
            shell, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(to, back)
        finally:
            os.close(to)
            process.terminate()
            process.wait()
            os.close(back)
