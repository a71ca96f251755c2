"""Drive a headless Chromium by the WebDriver protocol, as Debian's chromium-driver speaks it."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import eventually

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
ENDED = "Chromium ended by itself"
"""Debian's Chromium 156 does so on a busy machine where it looks for the glyphs of a page that was
just opened: "SkFontMgr_FontConfigInterface.cpp: Not implemented"."""
LOADING_S = 30.0
"""Seconds for which no page may be there while another one is loaded."""


def need_chromium() -> None:
    """Skip the test where there is no Chromium with its driver."""
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is missing (apt install chromium chromium-driver)")


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._process = subprocess.Popen(
            ("chromedriver", f"--port={port}"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._base = f"http://127.0.0.1:{port}"
        eventually(self._answers)
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={self._profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        wanted["goog:loggingPrefs"] = {"browser": "ALL"}
        made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with suppress(pytest.skip.Exception):  # it has ended already
                self._send("DELETE", "")
        finally:
            self._process.terminate()
            self._process.wait(30)

    def open(self, address: str) -> None:
        """Load an address."""
        self._repeat("/url", {"url": address})

    @contextmanager
    def new_tab(self) -> Iterator[None]:
        """Act in a new tab, which holds nothing of the others' sessions, and close it."""
        first = self._send("GET", "/window")
        made = self._send("POST", "/window/new", {"type": "tab"})["handle"]
        self._send("POST", "/window", {"handle": made})
        try:
            yield
        finally:
            self._send("DELETE", "/window")
            self._send("POST", "/window", {"handle": first})

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page, and return its result."""
        return self._repeat("/execute/sync", {"script": script, "args": list(arguments)})

    def _repeat(self, path: str, body: dict[str, Any]) -> Any:
        """Send a command, again where it met a page that was just being left for another one."""
        end = time.monotonic() + LOADING_S
        while True:
            try:
                return self._send("POST", path, body)
            except urllib.error.HTTPError as e:
                if e.code != HTTPStatus.NOT_FOUND or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def text(self, selector: str) -> str:
        """Return the text of the first such element; empty where there is none."""
        return self.run("return document.querySelector(arguments[0])?.textContent", selector) or ""

    def emulate(self, width: int, height: int, scheme: str) -> None:
        """Show the page on a screen of this size, in the light or the dark scheme."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def messages(self) -> list[str]:
        """Return what the browser wrote on its console since the last call."""
        found = self._send("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def picture(self) -> bytes:
        """Return a picture of the whole page as PNG."""
        options = {"captureBeyondViewport": True, "format": "png"}
        return base64.b64decode(self._command("Page.captureScreenshot", options)["data"])

    def _command(self, name: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": name, "params": parameters}
        return self._send("POST", "/goog/cdp/execute", body)

    def _answers(self) -> bool:
        try:
            return bool(self._send("GET", "/status")["ready"])
        except OSError:
            return False

    def _send(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as e:
            e.msg = f"{method} {path}: {e.read().decode(errors='replace')[:300]}"
            if "invalid session id" in e.msg:
                pytest.skip(ENDED)
            raise
