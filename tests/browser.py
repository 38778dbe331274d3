"""A headless browser for tests: Chromium over its own protocol on two pipes, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The system's Chromium, or the one of playwright; None if there is neither."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    try:
        from playwright.sync_api import sync_playwright  # pyright: ignore
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if pathlib.Path(path).exists() else None


class Browser:
    """One page of a headless browser, without a network; a context manager that ends it."""

    def __init__(self, profile: pathlib.Path):
        executable = find_browser()
        assert executable is not None
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        # The browser reads its orders from descriptor 3 and answers on 4.
        script = f'exec "$0" "$@" 3<&{commands} 4>&{replies}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--proxy-server=127.0.0.1:9", "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, executable, *options],
            pass_fds=(commands, replies),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(replies)
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self.send("Browser.close")
        self._process.wait(timeout=30)
        os.close(self._commands)
        os.close(self._replies)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One order, and the answer to it."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._count:
                assert "error" not in reply, (method, reply["error"])
                return reply["result"]
            self.events.append(reply)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._replies, 1 << 16)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: pathlib.Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Shows a file in a window of a size; narrow ones are phones'."""
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def value(self, expression: str) -> Any:
        """What an expression is worth in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Presses at one place, moves to another in steps, and lets go."""
        (x, y), (to_x, to_y) = begin, end
        self.send("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
        for share in (0.3, 0.7, 1.0):
            place = {"x": x + share * (to_x - x), "y": y + share * (to_y - y)}
            self.send("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **place)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name)

    def screenshot(self, path: pathlib.Path, *, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def complaints(self) -> list[str]:
        """Errors of scripts, and requests for anything but the file."""
        thrown = (e["params"]["exceptionDetails"] for e in self.events if e["method"] == "Runtime.exceptionThrown")
        errors = [details.get("exception", details).get("description", str(details)) for details in thrown]
        errors += [
            json.dumps(e["params"]["entry"])
            for e in self.events
            if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"
        ]
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return errors + [url for url in asked if not url.startswith("file:")]
