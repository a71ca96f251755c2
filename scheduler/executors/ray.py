"""A Ray cluster, through the job API of its dashboard: plain HTTP, as Ray itself is heavy and wants the cluster's very version.

Ray keeps one job to a submission id, refuses a second, and forgets all of them when the head is started anew, with a new session name.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from scheduler.executors import remote_runner
from scheduler.executors.agent_protocol import (
    PREFIX,
    Refused,
    Status,
    Submit,
    Unreachable,
    Unreadable,
)
from scheduler.executors.token import token
from scheduler.protocol.errors import MALFORMED

TIMEOUT_S = 20.0
CHUNK = 2**16
MAX_REPLY = 2**28
"""Bytes: the list of all jobs of a cluster is long."""
MAX_TOLD = 500
LOG_PAUSE_S = 0.5
"""How often the cluster looks for more output."""
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class Job(msgspec.Struct):
    """What the API tells of a job, as far as we ask."""

    status: str
    submission_id: str | None = None
    message: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    metadata: dict[str, str] | None = None
    driver_node_id: str | None = None


class Ray:
    def __init__(self, address: str, token_file: str) -> None:
        self._address = urlsplit(address)
        self._token_file = token_file
        self._kept: HTTPConnection | None = None

    def session(self) -> str:
        status, body = self._ask("GET", "/api/version")
        if status != 200:
            raise Unreachable(f"it answers {_words(status, body)}")
        return str(_decode(body, dict[str, Any])["session_name"])

    def ours(self, deck: str) -> list[str]:
        status, body = self._ask("GET", "/api/jobs/")
        if status != 200:
            raise Unreachable(f"it answers {_words(status, body)}")
        jobs = [
            job
            for job in _decode(body, list[Job])
            if (job.metadata or {}).get("gpudeck") == deck and job.status not in _OVER
        ]
        return [
            job.submission_id.removeprefix(PREFIX)
            for job in jobs
            if job.submission_id and job.submission_id.startswith(PREFIX)
        ]

    def submit(self, order: Submit, deck: str) -> None:
        launch = {
            "attempt": order.attempt,
            "cwd": order.cwd,
            "timeout": order.timeout,
            "folder": order.folder,
            "env": order.env,
        }
        asked = {
            "submission_id": PREFIX + order.attempt,
            "entrypoint": f"{remote_runner.COMMAND} {shlex.join(order.argv)}",
            "entrypoint_num_cpus": 1,
            "entrypoint_num_gpus": order.gpus,
            "metadata": {"gpudeck": deck, "name": order.name},
            "runtime_env": {
                "env_vars": {
                    "GPUDECK_RUNNER": Path(remote_runner.__file__).read_text(),
                    "GPUDECK_LAUNCH": json.dumps(launch),
                }
            },
        }
        status, body = self._ask("POST", "/api/jobs/", asked)
        if status == 200 or self._job(order.attempt) is not None:
            return
        words = _words(status, body)
        if (
            status < 500 or b"status code 400" in body
        ):  # what its agent refused, the head passes on as an error of its own
            raise Refused(words)
        raise Unreachable(f"it answers {words}")

    def status(self, attempt: str, folder: Path) -> Status | None:
        job = self._job(attempt)
        if job is None:
            return None
        if job.status in _OVER:
            note = "it was stopped in the cluster" if job.status == "STOPPED" else _told(job)
            return Status(
                "over",
                note,
                job.status != "SUCCEEDED",
                _seconds(job.start_time),
                _seconds(job.end_time),
            )
        # a job whose machine is not known yet has no output to be read
        return Status(
            "running" if job.status == "RUNNING" and job.driver_node_id else "pending", _told(job)
        )

    def halt(self, attempt: str) -> None:
        status, body = self._ask("POST", f"/api/jobs/{PREFIX}{attempt}/stop")
        if status not in (200, 404):
            raise Unreachable(f"it answers {_words(status, body)}")

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
                raise Unreadable(_words(response.status, response.read(CHUNK)))
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
        """Keep no connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _job(self, attempt: str) -> Job | None:
        status, body = self._ask("GET", f"/api/jobs/{PREFIX}{attempt}")
        if status == 404:
            return None
        if status != 200:
            raise Unreachable(f"it answers {_words(status, body)}")
        found: Job = _decode(body, Job)
        return found

    def _ask(self, method: str, path: str, content: object = None) -> tuple[int, bytes]:
        """Status and body. A connection is kept; where it broke between two questions, a new one is made, but only to ask, not to order."""
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
        if secret := token(self._token_file):
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
            told = (
                f"the token in {self._token_file}"
                if self._token_file
                else "a request without a token"
            )
            raise Unreachable(f"it does not accept {told}")
        return response


class _Output:
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
        raise Unreachable(f"what answers is no Ray dashboard: {e}") from e


def _told(job: Job) -> str:
    """What Ray says of the job, without the end of its output, which we have."""
    text = (job.message or "").partition(", last available logs")[0].strip()
    return text.splitlines()[0][:MAX_TOLD] if text else ""


def _seconds(milliseconds: float | None) -> float:
    return (milliseconds or 0.0) / 1e3


def _words(status: int, body: bytes) -> str:
    """The last line of what a server says of an error: of a Python traceback, the error."""
    lines = [
        line.strip() for line in body.decode(errors="replace").splitlines() if line.strip(" .")
    ]
    return f"{status}: {lines[-1][:300]}" if lines else str(status)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    return (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or type(error).__name__
    )
