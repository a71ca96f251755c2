"""Run a real HTTP server that receives what a webhook sends."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hook:
    """Receive what the webhook sends, and answer with the prescribed status."""

    def __init__(self) -> None:
        self.got: list[dict[str, object]] = []
        self.answers: list[int] = []
        """The status of the next answers, then 200; with 0 the server does not answer."""
        self.location = ""
        """The address that an answer names, for a redirect."""
        self.requests: list[str] = []
        """The method and path of all requests."""
        self.authorization: list[str | None] = []
        """The header of this name of all requests that were answered with 200."""
        self.let_go = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hook.requests.append(f"GET {self.path}")
                self.send_response(200)
                self.end_headers()

            def do_POST(self) -> None:
                hook.requests.append(f"POST {self.path}")
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 0:
                    hook.let_go.wait(30)
                    return
                if status == 200:
                    hook.got.append({"path": self.path, **json.loads(body)})
                    hook.authorization.append(self.headers["Authorization"])
                self.send_response(status)
                if hook.location:
                    self.send_header("Location", hook.location)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=s3cret"

    def close(self) -> None:
        self.let_go.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
