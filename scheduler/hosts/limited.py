"""Run a command whose output another machine decides on: its bytes and its time are limited."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

_CHUNK = 2**16


class Output(NamedTuple):
    """Hold what a command wrote, and how it ended."""

    status: int
    out: bytes
    errors: bytes


class TooMuch(Exception):
    """Report a command that wrote more than it may; it was ended."""


def run_limited(words: Sequence[str], most: int, seconds: float) -> Output:
    """Run a command without input, and return its output.

    Args:
        words: The command.
        most: The bytes that it may write.
        seconds: The time until it must have ended.

    Raises:
        TooMuch: It wrote more.
        TimeoutError: It did not end.
        OSError: It cannot be started.
    """
    end = time.monotonic() + seconds
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, errors = _read(process, most, end)
            status = process.wait(max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired as e:
            raise TimeoutError from e
        finally:
            process.kill()
    return Output(status, out, errors)


def _read(process: subprocess.Popen[bytes], most: int, end: float) -> tuple[bytes, bytes]:
    """Return what the process writes until it closes both streams."""
    assert process.stdout is not None
    assert process.stderr is not None
    found = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, errors = found.values()
    with selectors.DefaultSelector() as open_ends:
        for stream in found:
            open_ends.register(stream, selectors.EVENT_READ)
        while open_ends.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in open_ends.select(left):
                if data := os.read(key.fd, _CHUNK):
                    found[key.fd] += data
                else:
                    open_ends.unregister(key.fd)
            if len(out) + len(errors) > most:
                raise TooMuch
    return bytes(out), bytes(errors)
