"""A Ray cluster, driven through the job API of its dashboard.

That is plain HTTP, as the Ray package is large and must have the cluster's very version. Ray runs
one job for a submission id and refuses a second. It forgets all of them when its head is restarted,
which changes the name of its session.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from gpudeck.language.text import Message, Span, phrase
from gpudeck.scheduler.executors.agent_protocol import (
    PREFIX,
    Refused,
    Status,
    SubmitAttempt,
    Unreachable,
    Unreadable,
)
from gpudeck.scheduler.executors.launch import remote_command, remote_environment
from gpudeck.scheduler.protocol.errors import MALFORMED

TIMEOUT_S = 20.0
CHUNK = 2**16
MAX_REPLY = 2**28
"""Bytes: the list of all jobs of a cluster is long."""
MAX_TOKEN = 4096
"""Bytes."""
MAX_NOTE = 500
LOG_PAUSE_S = 0.5
"""Seconds between two times that the cluster looks for more output."""
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class RayJob(msgspec.Struct):
    """Describe a job as the API does, as far as it is read."""

    status: str
    submission_id: str | None = None
    message: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    metadata: dict[str, str] | None = None
    driver_node_id: str | None = None


class Ray:
    """Drive a Ray cluster."""

    def __init__(self, address: str, token_file: str) -> None:
        self._address = urlsplit(address)
        self._token_file = token_file
        self._kept: HTTPConnection | None = None

    def session(self) -> str:
        body = self._get("/api/version")
        return str(_decode(body, dict[str, Any])["session_name"])

    def attempts(self, deck: str) -> list[str]:
        jobs: list[RayJob] = _decode(self._get("/api/jobs/"), list[RayJob])
        ours = [
            job.submission_id or ""
            for job in jobs
            if (job.metadata or {}).get("gpudeck") == deck and job.status not in _OVER
        ]
        return [name.removeprefix(PREFIX) for name in ours if name.startswith(PREFIX)]

    def submit(self, request: SubmitAttempt, deck: str) -> None:
        content = {
            "submission_id": PREFIX + request.attempt,
            "entrypoint": remote_command(request),
            "entrypoint_num_cpus": 1,
            "entrypoint_num_gpus": request.spec.gpus,
            "metadata": {"gpudeck": deck, "name": request.spec.name},
            "runtime_env": {"env_vars": remote_environment(request)},
        }
        status, body = self._ask("POST", "/api/jobs/", content)
        if status == 200 or self._job(request.attempt) is not None:
            return
        # what its agent refused, the head passes on as an error of its own
        if status < 500 or b"status code 400" in body:
            raise Refused(_error_text(status, body))
        raise Unreachable(phrase("it answers {answer}", answer=_error_text(status, body)))

    def status(self, attempt: str, folder: Path) -> Status | None:
        job = self._job(attempt)
        if job is None:
            return None
        if job.status not in _OVER:
            # a job whose machine is not known yet has no output to be read
            runs = job.status == "RUNNING" and job.driver_node_id
            return Status("running" if runs else "pending", _note(job))
        note = "it was stopped in the cluster" if job.status == "STOPPED" else _note(job)
        times = ((job.start_time or 0.0) / 1e3, (job.end_time or 0.0) / 1e3)
        return Status("over", note, job.status != "SUCCEEDED", *times)

    def halt(self, attempt: str) -> None:
        status, body = self._ask("POST", f"/api/jobs/{PREFIX}{attempt}/stop")
        if status not in (200, 404):
            raise Unreachable(phrase("it answers {answer}", answer=_error_text(status, body)))

    def output(self, attempt: str, folder: Path, follow: bool) -> _Output:
        job = self._job(attempt)
        if job is None or not job.driver_node_id:  # it never got to a machine
            return _Output(None)
        kind, node = ("stream" if follow else "file"), quote(job.driver_node_id)
        path = f"/api/v0/logs/{kind}?node_id={node}&submission_id={PREFIX}{attempt}&lines=-1"
        path += f"&interval={LOG_PAUSE_S}" if follow else ""
        connection = self._connection()
        try:
            response = self._request(connection, "GET", path)
            if response.status != 200:
                raise Unreadable(_error_text(response.status, response.read(CHUNK)))
            if follow and connection.sock is not None:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.sock.settimeout(None)  # it may print nothing for hours
        except (OSError, HTTPException) as e:
            connection.close()
            raise Unreachable(_reason(e)) from e
        except (Unreachable, Unreadable):
            connection.close()
            raise
        return _Output(response, connection.sock)

    def close(self) -> None:
        """Close the connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _job(self, attempt: str) -> RayJob | None:
        status, body = self._ask("GET", f"/api/jobs/{PREFIX}{attempt}")
        if status == 404:
            return None
        found: RayJob = _decode(_checked(status, body), RayJob)
        return found

    def _get(self, path: str) -> bytes:
        return _checked(*self._ask("GET", path))

    def _ask(self, method: str, path: str, content: object = None) -> tuple[int, bytes]:
        """Send a request on the connection that is kept, and return the reply's status and body.

        Where the connection broke between two requests, a new one is made, but only to repeat a
        request that changes nothing.
        """
        fresh = self._kept is None
        self._kept = connection = self._kept or self._connection()
        try:
            response = self._request(connection, method, path, content)
            return response.status, response.read(MAX_REPLY)
        except (OSError, HTTPException) as e:
            self.close()
            if not fresh and method == "GET":
                return self._ask(method, path, content)
            raise Unreachable(_reason(e)) from e

    def _connection(self) -> HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        kind = HTTPSConnection if self._address.scheme == "https" else HTTPConnection
        return kind(host, port, timeout=TIMEOUT_S)

    def _request(
        self, connection: HTTPConnection, method: str, path: str, content: object = None
    ) -> HTTPResponse:
        """Raises Unreachable where the token is not accepted."""
        headers = {"Content-Type": "application/json"}
        if secret := read_token(self._token_file):
            headers["Authorization"] = f"Bearer {secret}"
        connection.request(
            method,
            self._address.path.rstrip("/") + path,
            json.dumps(content) if content is not None else None,
            headers,
        )
        response = connection.getresponse()
        if response.status in (401, 403):
            response.read(CHUNK)
            raise Unreachable(
                phrase("it does not accept the token in {file}", file=self._token_file)
                if self._token_file
                else phrase("it asks for a token")
            )
        return response


class _Output:
    """Iterate over the body of a response."""

    def __init__(self, response: HTTPResponse | None, sock: socket.socket | None = None) -> None:
        self._response, self._socket = response, sock

    def __iter__(self) -> Iterator[bytes]:
        try:
            while self._response is not None and (data := self._response.read1(CHUNK)):
                yield data
        except (OSError, HTTPException, ValueError) as e:  # ValueError: closed meanwhile
            raise Unreachable(_reason(e)) from e

    def close(self) -> None:
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
            self._socket.close()


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as e:
        raise Unreachable(phrase("the server is not a Ray dashboard: {error}", error=str(e))) from e


def _checked(status: int, body: bytes) -> bytes:
    if status != 200:
        raise Unreachable(phrase("it answers {answer}", answer=_error_text(status, body)))
    return body


def _note(job: RayJob) -> str:
    """Return Ray's message about the job, without the end of its output, which we have."""
    text = (job.message or "").partition(", last available logs")[0].strip()
    return text.splitlines()[0][:MAX_NOTE] if text else ""


def _error_text(status: int, body: bytes) -> str:
    """Return the last line of a server's error: of a Python traceback, the error itself."""
    lines = [
        line.strip() for line in body.decode(errors="replace").splitlines() if line.strip(" .")
    ]
    return f"{status}: {lines[-1][:300]}" if lines else str(status)


def _reason(error: Exception) -> Message:
    if isinstance(error, TimeoutError):
        return phrase("no answer within {span}", span=Span(TIMEOUT_S))
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def read_token(file: str) -> str:
    """Return the token in a file that nobody else can read; an empty one where no file is named.

    It is read anew for each request, as tokens are renewed. Raises Unreachable.
    """
    if not file:
        return ""
    try:
        with Path(file).expanduser().open("rb") as f:
            if os.fstat(f.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Unreachable(
                    phrase(
                        "others can read the token in {file}. Try: chmod 600 {file}", file=str(file)
                    )
                )
            found = f.read(MAX_TOKEN).decode().strip()
    except (OSError, UnicodeDecodeError) as e:
        why = getattr(e, "strerror", None) or "it is not text"
        raise Unreachable(
            phrase("the token in {file} cannot be read: {why}", file=str(file), why=why)
        ) from e
    if not found or not found.isascii() or not found.isprintable():
        raise Unreachable(phrase("there is no token in {file}", file=str(file)))
    return found
