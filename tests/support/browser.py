"""A browser without a window, told what to do over a pipe (DevTools protocol)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any, Final

from commands import until

PROGRAM: Final = shutil.which("chromium") or shutil.which("google-chrome")
SECONDS: Final = 60.0
_KEYS: Final = {
    "Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39,
}  # fmt: skip


class Browser:
    """One page of a browser."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._left = b""
        self._number = 0
        self._session = self._target = ""
        self.errors: list[str] = []

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Ask, and wait for the answer; what went wrong in the page is kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.errors.append(str(told["params"]))
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    def open(self, path: Path, width: int, *, touch: bool = False) -> None:
        """Show a file, in a new page of this width."""
        self.new_page(width, touch=touch)
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.readyState == 'complete' && location.protocol == 'file:'")

    def visit(self, url: str) -> None:
        """Go elsewhere in this page."""
        self.js("window.left = true")
        self.call("Page.navigate", url=url)
        self.until("!window.left && document.readyState == 'complete'")

    def new_page(self, width: int, *, touch: bool = False) -> None:
        """A page of this width with nothing in it, instead of the one that was shown."""
        self._session = ""
        if self._target:
            self.call("Target.closeTarget", targetId=self._target)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=touch)  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Runtime.enable")
        self.call("Log.enable")

    def js(self, code: str) -> Any:
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression holds."""
        assert until(lambda: bool(self.js(code)), SECONDS), f"never: {code}"

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text,
                      windowsVirtualKeyCode=_KEYS[key], modifiers=8 * shift)  # fmt: skip

    def enter(self, text: str) -> None:
        """Go by Tab to what has this text, and press Enter."""
        for _ in range(100):
            self.key("Tab")
            if self.js("document.activeElement.textContent") == text:
                return self.key("Enter")
        raise AssertionError(f"no key leads to {text!r}")

    def tap(self, x: float, y: float) -> None:
        """Touch, and lift the finger."""
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._left:
            ready, _, _ = select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has ended"
            self._left += more
        one, self._left = self._left.split(b"\0", 1)
        told: dict[str, Any] = json.loads(one)
        return told


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser that keeps what it has to keep in a folder, and is ended afterwards."""
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    run = 'read=$1 write=$2; shift 2; exec "$@" 3<&$read 4>&$write'
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
               "--disable-dev-shm-usage", f"--user-data-dir={folder}"]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", run, "-", str(theirs_read), str(theirs_write), str(PROGRAM), *options],
        pass_fds=(theirs_read, theirs_write), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_read)
    os.close(theirs_write)
    try:
        yield Browser(ours_read, ours_write)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
        os.close(ours_read)
        os.close(ours_write)
