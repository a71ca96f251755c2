"""Measure the time from the start of the process to the first live chart.

    python -m tests.benchmarks.window_start      one start, in this process, as JSON

It covers the interpreter, imports, window, daemon, first reading and painting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gpudeck.app.shell.main import begin
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone


def measure(count: int = 7) -> dict[str, dict[str, float]]:
    """Return the seconds with the daemon already running (`warm`), also on a German desktop
    (`german`), and without one (`cold`).

    Each start is a new process; the kinds take turns.
    """
    from tests.benchmarks.rows import spread  # not part of the measured start

    samples: dict[str, list[float]] = {"warm": [], "german": [], "cold": []}
    for turn in range(count + 1):
        for kind, found in samples.items():
            if kind == "cold":
                stop_daemon()
            run = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.window_start"],
                capture_output=True,
                check=True,
                text=True,
                env={**os.environ, "LANGUAGE": "de" if kind == "german" else "en"},
            )
            if turn:  # the first start loads the libraries from disk
                found.append(json.loads(run.stdout)["seconds"])
    return {kind: spread(found) for kind, found in samples.items()}


def stop_daemon() -> None:
    """Stop the daemon of the state folder, if one runs."""
    try:
        with Client(start=False) as deck:
            deck.stop_daemon()
    except DaemonGone:
        pass


def _age() -> float:
    """Return the seconds since this process was started, by the kernel's clock (to 10 ms)."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    began = time.time() - _age()
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    begin()  # like `gpudeck`
    from gpudeck.app.shell.desktop import translate
    from gpudeck.app.tour.session import Session
    from gpudeck.app.widgets import theme

    translate(theme.application())
    with Session() as session:
        window = session.window

        def live() -> bool:
            span = window.state.history.span()
            return span is not None and span[1] > began

        found = session.until(live, 30)
        window.refresh()
        window.grab()
        seconds = _age()
    if not found:
        raise SystemExit("no live chart within 30 s")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
