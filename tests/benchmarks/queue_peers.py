"""Compare the latency of submitting and starting a job with gflow and task-spooler.

    PATH=/folder/with/gbatch:$PATH python -m tests.benchmarks.queue_peers

Install them with `pip install runqd` (which needs tmux) and `apt install task-spooler`; a tool that
is not installed is skipped with a message. The tools take turns in a rotating order. A job is a
shell script that writes the time.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.version import VERSION
from tests.benchmarks.rows import context, spread, write

ROUNDS = 25
TIMEOUT_S = 30.0

Submit = Callable[[Path], object]
"""Submits this script as a job, and returns once it is acknowledged."""


def main() -> int:
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tools: dict[str, tuple[str, Submit]] = {}
        for program, start in (("python", _gpudeck), ("gbatch", _gflow), ("tsp", _task_spooler)):
            if shutil.which(program):
                tools |= stack.enter_context(start(base / program))
            else:
                print(f"left out: {program} is not installed")
        rows = _measure(base, tools)
    for row in rows:
        beside = f"(p95 {row['p95']:.4g}, min {row['min']:.4g}, max {row['max']:.4g})"
        print(f"{row['tool']:28} {row['figure']:30} {row['median']:9.4g} ms  {beside}")
    print(write("queue_peers", rows))
    return 0


def _measure(base: Path, tools: dict[str, tuple[str, Submit]]) -> list[dict[str, object]]:
    found: dict[tuple[str, str], list[float]] = {
        (t, f): [] for t in tools for f in ("submit acknowledged", "submit to first instruction")
    }
    order = list(tools)
    for number in range(ROUNDS + 1):
        order = [*order[1:], order[0]]
        for tool in order:
            out = base / f"{number}-{order.index(tool)}"
            script = out.with_suffix(".sh")
            script.write_text(f"#!/bin/sh\ndate +%s.%N > '{out}.new'\nmv '{out}.new' '{out}'\n")
            script.chmod(0o700)
            before = time.time()
            tools[tool][1](script)
            acknowledged = time.time()
            began = float(_wait_for(out))
            time.sleep(0.1)  # its end must not slow down the next job
            if number:  # the first jobs load programs from disk
                found[tool, "submit acknowledged"].append((acknowledged - before) * 1000)
                found[tool, "submit to first instruction"].append((began - before) * 1000)
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    return [
        {"tool": t, "version": tools[t][0], "figure": f, "unit": "ms", **spread(s), **where}
        for (t, f), s in found.items()
    ]


def _wait_for(file: Path) -> str:
    end = time.monotonic() + TIMEOUT_S
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"no job wrote {file}")
        time.sleep(0.002)
    return file.read_text()


@contextlib.contextmanager
def _gpudeck(folder: Path) -> Iterator[dict[str, tuple[str, Submit]]]:
    os.environ["GPUDECK_HOME"] = str(folder)
    settings.save(Settings(source="cpu"))
    cli = [sys.executable, "-m", "gpudeck", "submit", "--"]
    with Client() as deck:
        yield {
            "GPU Deck, from Python": (VERSION, lambda script: deck.submit([str(script)])),
            "GPU Deck, command line": (VERSION, lambda script: _quietly([*cli, str(script)])),
        }
        deck.stop_daemon()


@contextlib.contextmanager
def _gflow(folder: Path) -> Iterator[dict[str, tuple[str, Submit]]]:
    """Run gflow's daemon with its own state, port and tmux server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    names = (
        "HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "TMUX_TMPDIR",
    )
    env = {**os.environ, **dict.fromkeys(names, str(folder)), "SHELL": "/bin/sh"}
    _quietly(["gflowd", "init", "--yes", "--force", "--port", str(port)], env)
    _quietly(["gflowd", "start"], env)
    version = subprocess.run(
        ["gbatch", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    time.sleep(2.0)
    try:
        yield {
            "gflow, command line": (version, lambda script: _quietly(["gbatch", str(script)], env))
        }
    finally:
        _quietly(["gflowd", "stop"], env)
        subprocess.run(["tmux", "kill-server"], env=env, capture_output=True, check=False)


@contextlib.contextmanager
def _task_spooler(folder: Path) -> Iterator[dict[str, tuple[str, Submit]]]:
    folder.mkdir()
    env = {**os.environ, "TS_SOCKET": str(folder / "socket"), "TMPDIR": str(folder)}
    said = subprocess.run(["tsp", "-V"], capture_output=True, text=True, check=False)
    version = re.search(r"v([\d.]+)", said.stdout + said.stderr)
    try:
        yield {
            "task-spooler, command line": (
                version[1] if version else "?",
                lambda script: _quietly(["tsp", str(script)], env),
            )
        }
    finally:
        _quietly(["tsp", "-K"], env)


def _quietly(command: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


if __name__ == "__main__":
    sys.exit(main())
