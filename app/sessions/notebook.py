"""Run the user's Jupyter server as a job, and end it when nobody uses it.

    python -m gpudeck.app.sessions.notebook IDLE_SECONDS JUPYTER [ARGUMENT ...]

Source: the REST API of Jupyter Server (/api/status, /api/kernels).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from gpudeck.app.sessions import files
from gpudeck.app.sessions.idle import IdleClock, cpu_seconds, look
from gpudeck.language.numbers import span
from gpudeck.scheduler.protocol.errors import MALFORMED

CHECK_S = 5.0
"""Seconds between two checks whether the notebook is used, at most."""
_ANSWER_S, _MOST_ANSWERED = 10.0, 2**24
"""Seconds for an answer of Jupyter, and its bytes."""
_END_S = 20.0
"""Seconds that Jupyter gets to end by itself."""


def main(idle: float, command: list[str]) -> int:
    """Run the server until it ends or is idle; return the exit status."""
    folder, token = files.own_folder(), secrets.token_hex(24)
    env = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_RUNTIME_DIR": str(folder)}
    options = ["--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=200"]
    options += ["--allow-root"] if os.getuid() == 0 else []
    server = subprocess.Popen([*command, *options], env=env)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    clock = IdleClock(idle, look, cpu_seconds)
    url = ""
    while (status := _wait(server, min(CHECK_S, clock.limit / 4 or CHECK_S))) is None:
        url = url or _address(folder, server.pid)
        if not url:
            continue
        over = clock.check(_last_use(url, token))
        opens = f"{url}?token={token}"
        files.write(files.Session(files.NOTEBOOK, clock.active, clock.limit, opens))
        if over:
            print(f"The notebook ends, as nobody used it for {span(clock.limit)}.", flush=True)
            return _end(server)
    return status


def _wait(server: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return server.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _address(folder: Path, pid: int) -> str:
    """Return where the server listens; empty until it does."""
    try:
        found = json.loads((folder / f"jpserver-{pid}.json").read_text())
        return str(found["url"])
    except (OSError, ValueError, KeyError):
        return ""


def _last_use(url: str, token: str) -> float:
    """Return when a kernel was last busy, or the server was last used by a person."""
    try:
        kernels, status = _ask(url, token, "api/kernels"), _ask(url, token, "api/status")
        if any(kernel["execution_state"] == "busy" for kernel in kernels):
            return time.time()
        moments = [status["last_activity"], *(kernel["last_activity"] for kernel in kernels)]
        return max(datetime.fromisoformat(moment).timestamp() for moment in moments)
    except (OSError, HTTPException, *MALFORMED, LookupError, TypeError, ArithmeticError):
        return time.time()  # it is too busy to answer, or is no server that we know


def _ask(url: str, token: str, what: str) -> Any:
    """Return the server's answer, without counting as its use.

    Raises OSError, HTTPException, and what is raised for an answer that is no JSON.
    """
    headers = {"Authorization": f"token {token}"}
    # the address is the one on this machine that the server wrote
    request = urllib.request.Request(  # noqa: S310
        f"{url}{what}?no_track_activity=1", headers=headers
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_ANSWER_S) as answer:
        return json.loads(answer.read(_MOST_ANSWERED))


def _end(server: subprocess.Popen[bytes]) -> int:
    server.terminate()
    if _wait(server, _END_S) is None:
        server.kill()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
