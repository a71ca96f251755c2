"""Run `gpudeck serve` as a process, and send it requests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple


class Served(NamedTuple):
    port: int
    token: str
    home: Path

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body: JSON, or the lines of a stream."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(
                "POST" if body is not None else "GET",
                path,
                sent,
                {"Authorization": f"Bearer {self.token}", **headers},
            )
            reply = connection.getresponse()
            text = reply.read().decode()
        told = {name.lower(): value for name, value in reply.getheaders()}
        return (
            reply.status,
            told,
            json.loads(text) if "json" in told["content-type"] else text.split("\n\n"),
        )


class serving:  # noqa: N801 - a context manager
    """Run the command until the end of the block."""

    def __init__(self, home: Path, *options: str, stderr: int | None = None) -> None:
        self._home, self._options, self.stderr = home, options, stderr
        self.errors = ""

    def __enter__(self) -> Served:
        command = [sys.executable, "-m", "gpudeck", "serve", "--port", "0", *self._options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.stderr, text=True
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline()
        self.said = self._process.stdout.readline()
        port = re.search(r"127\.0\.0\.1:(\d+)/v1", address)
        assert port, address
        return Served(int(port[1]), (self._home / "serve.token").read_text(), self._home)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self.errors = self._process.communicate(timeout=30)[1] or ""
