"""Ask a running `gpudeck web`."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection
from typing import Any


class Page:
    """A running `gpudeck web`."""

    def __init__(self, link: str) -> None:
        self.link = link
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#([\w-]+)", link)
        assert found
        self.port, self.token = int(found[1]), found[2]

    def ask(
        self, path: str, method: str = "GET", token: str | None = None, host: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of a reply that is not a stream."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Host": host or f"127.0.0.1:{self.port}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        body = b"" if reply.getheader("content-type", "").startswith("text/event") else reply.read()
        connection.close()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, body

    def events(self, path: str, most: int) -> list[tuple[str, Any]]:
        """Return the first events of a stream."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        reply, found = connection.getresponse(), []
        while len(found) < most and (line := reply.readline()):
            if line.startswith(b"event: "):
                data = reply.readline().removeprefix(b"data: ")
                found.append((line[7:].decode().strip(), json.loads(data)))
        connection.close()
        return found
