"""Run as a job under torture: append the job's number and attempt to the ledger, then act its kind.

The ledger is synced before anything else happens. A job that is about to end by itself appends a
line with a third word. The order of the lines is the order of the events.

python -S victim.py KIND LEDGER NONCE [ARGUMENT], where NONCE marks the command lines of all its
processes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

KIND, LEDGER, NONCE = sys.argv[1:4]


def record(*words: str) -> None:
    """Append a line by one write(2), so that those of several jobs cannot mix."""
    fd = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(
        fd,
        " ".join((os.environ["GPUDECK_JOB"], os.environ["GPUDECK_ATTEMPT"], *words)).encode()
        + b"\n",
    )
    os.fsync(fd)
    os.close(fd)


def attempts() -> int:
    """Return how often this job began."""
    lines = [line.split() for line in Path(LEDGER).read_text().splitlines()]
    return sum(line[0] == os.environ["GPUDECK_JOB"] and len(line) == 2 for line in lines)


def fork_away() -> None:
    """Leave a process behind in a session of its own whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


def flood(size: int) -> None:
    """Print this many bytes, or as many as the disk holds."""
    line = b"\x1b]0;owned\x07" + b"x" * 1000 + b"\n"
    block = line * (2**20 // len(line))
    while size > 0:
        try:
            size -= os.write(1, block)
        except OSError:  # the disk is full
            return


record()
code = 0
match KIND:
    case "fail" | "hopeless":
        print("no luck")
        code = 3
    case "flaky":  # fails the first time
        code = int(attempts() == 1)
    case "slow":
        time.sleep(0.4)
    case "narrow":
        time.sleep(0.2)
    case "member":  # of an array
        code = int(os.environ["GPUDECK_ARRAY_INDEX"] != sys.argv[4])
    case "overtime":
        time.sleep(600)
    case "fork":
        fork_away()
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fork_away()
        time.sleep(600)
    case "flood":
        flood(int(sys.argv[4]))
record("ends")
sys.exit(code)
