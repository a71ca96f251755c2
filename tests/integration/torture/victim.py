"""A job under torture: it appends its number and attempt to the ledger, synced, before anything else; then does as its kind says.

python -S victim.py KIND LEDGER NONCE, where NONCE marks all its processes on their command lines.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

KIND, LEDGER, NONCE = sys.argv[1:4]


def record() -> None:
    """One write(2) of one line: appends of several jobs cannot mix."""
    fd = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{os.environ['GPUDECK_JOB']} {os.environ['GPUDECK_ATTEMPT']}\n".encode())
    os.fsync(fd)
    os.close(fd)


def fork_away() -> None:
    """A child in a session of its own whose parent ends: nobody's child any more, and in no hurry."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


def flood(size: int) -> None:
    line = b"\x1b]0;owned\x07" + b"x" * 1000 + b"\n"
    block = line * (2**20 // len(line))
    while size > 0:
        try:
            size -= os.write(1, block)
        except OSError:  # the disk is full: what a flood may do
            return


record()
match KIND:
    case "fail":
        print("no luck")
        sys.exit(3)
    case "flaky":  # fails the first time
        lines = Path(LEDGER).read_text().splitlines()
        sys.exit(sum(line.startswith(os.environ["GPUDECK_JOB"] + " ") for line in lines) == 1)
    case "slow":
        time.sleep(0.4)
    case "fork":
        fork_away()
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fork_away()
        time.sleep(600)
    case "flood":
        flood(int(sys.argv[4]))
