"""Serve a hub on this machine, which breaks off, stalls or lies as a test wants."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REVISION = "a" * 40


class Hub:
    """Hold what the hub has and does; `asked` lists the requested files and first bytes."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[tuple[str, int]] = []
        self.breaks: dict[str, int] = {}
        """By file, the number of bytes after which the connection is closed once."""
        self.stalls: dict[str, int] = {}
        """By file, the number of bytes after which the hub sends nothing more."""
        self.lies: dict[str, str] = {}
        """By file, the false SHA-256 that the hub reports."""
        self.floods: dict[str, bytes] = {}
        """By file, or "listing", the bytes that the hub sends again and again, up to 1 GiB."""
        self.packed = False
        """It says that floods are compressed by gzip."""
        self.flooded = 0
        """The bytes of floods that were sent."""
        self.ended = threading.Event()
        self.url = ""

    def listing(self) -> dict[str, object]:
        siblings = []
        for name, data in self.files.items():
            sibling: dict[str, object] = {"rfilename": name, "size": len(data)}
            sibling["blobId"] = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
            if name.endswith((".safetensors", ".bin")):
                sha = self.lies.get(name, hashlib.sha256(data).hexdigest())
                sibling["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 134}
            siblings.append(sibling)
        return {
            "id": "ada/tiny",
            "sha": REVISION,
            "siblings": siblings,
            "tags": [],
            "private": False,
        }


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    hub = Hub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/api/models/ada/tiny":
                if "listing" in hub.floods:
                    self._flood(hub.floods["listing"])
                    return
                self._give(json.dumps(hub.listing()).encode(), "application/json")
            elif self.path.startswith(f"/ada/tiny/resolve/{REVISION}/"):
                self._give_file(self.path.rsplit("/", 1)[1])
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _give(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _flood(self, data: bytes) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            if hub.packed:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            while hub.flooded < 2**30:
                try:
                    self.wfile.write(data)
                except OSError:
                    break  # the client has left
                hub.flooded += len(data)

        def _give_file(self, name: str) -> None:
            if name in hub.floods:
                hub.asked.append((name, 0))
                self._flood(hub.floods[name])
                return
            data, wanted = hub.files[name], self.headers.get("Range", "")
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            hub.asked.append((name, start))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            stop = hub.breaks.pop(name, None) or hub.stalls.get(name)
            self.wfile.write(data[start : stop or len(data)])
            if name in hub.stalls:
                hub.ended.wait(30)
            if stop:
                self.close_connection = True

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def folder_files(folder: Path) -> dict[str, bytes]:
    """Return a model's folder as the hub has it, with files that must never be fetched."""
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    code = b"raise SystemExit('this was run')"
    return {
        **found,
        "modeling_rwkv7.py": code,
        "pytorch_model.bin": code * 99,
        "sub/model.safetensors": code,
        ".safetensors": code,
    }
