"""Copy what an attempt in a cluster prints into the job's log, and read how it ended."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpudeck.scheduler.executors.log_cap import LogCap
from gpudeck.scheduler.executors.remote_runner import begin_line, end_mark
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED

MAX_REPORT = 2**23
"""Bytes of the last line, in which JSON of a Result stands as a text."""


class FinalReport(msgspec.Struct, frozen=True):
    """Describe the end of an attempt, as its runner prints it in the last line."""

    started: float
    ended: float
    code: int | None
    error: str
    over: float
    result: str


class OutputCopy:
    """Copy the output from its first byte on, however often it is read anew.

    What the log has already is skipped. What the cluster prints before the command begins is left
    out; where no command begins, it is all there is.
    """

    def __init__(self, log: Path, attempt: str, limit: int = 0) -> None:
        """Open the log.

        Args:
            limit: bytes of the log that are kept; 0 keeps all.
        """
        self._begin, self._end = begin_line(attempt), end_mark(attempt)
        self._log = os.open(
            log,
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
            paths.PRIVATE_FILE,
        )
        self._skip = os.fstat(self._log).st_size
        self._cap = LogCap(self._log, limit)
        self._buffer = b""
        """Bytes in which the beginning of a mark may stand."""
        self._began = self._ended = False
        """Whether the mark before the command's output, and the one after it, were read."""

    def feed(self, data: bytes) -> None:
        """Take the next piece of the output. Raises OSError where the log cannot be written."""
        self._buffer += data
        if not self._began:
            at = self._buffer.find(self._begin)
            if at < 0:
                self._buffer = self._buffer[-MAX_REPORT:]
                return
            self._buffer, self._began = self._buffer[at + len(self._begin) :], True
        if not self._ended:
            at = self._buffer.find(self._end)
            self._ended = at >= 0
            if at < 0:
                at = len(self._buffer) - _overlap(self._buffer, self._end)
            self._write(self._buffer[:at])
            self._buffer = self._buffer[at:]
        if self._ended:
            self._buffer = self._buffer[: MAX_REPORT + 1]

    def close(self, whole: bool) -> None:
        """Close the log. Raises OSError.

        Args:
            whole: the output was read to its end.
        """
        try:
            if whole and not self._ended:  # of a command that never began, the cluster's output
                self._write(self._buffer)
        finally:
            os.close(self._log)

    @property
    def report(self) -> FinalReport | None:
        """Return the runner's report of the end; None where it could make none."""
        if not self._ended:
            return None
        content = b"{" + self._buffer[len(self._end) :].lstrip(b", ")
        try:
            return msgspec.json.decode(content, type=FinalReport)
        except MALFORMED:
            return None

    def _write(self, data: bytes) -> None:
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        left = memoryview(data)[skipped:]
        while left:
            left = left[os.write(self._log, left) :]
        self._cap.enforce()

    @property
    def uncapped(self) -> str:
        """Return why the log exceeds its limit; an empty text where it does not."""
        return self._cap.error


def copy(
    output: Iterable[bytes], log: Path, attempt: str, limit: int = 0, whole: bool = True
) -> OutputCopy:
    """Copy the output to its end.

    Args:
        limit: bytes of the log that are kept; 0 keeps all.
        whole: the attempt is over, so that the output has an end.
    """
    target, done = OutputCopy(log, attempt, limit), False
    try:
        for data in output:
            target.feed(data)
        done = whole
    finally:
        target.close(done)
    return target


def _overlap(data: bytes, mark: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `mark`."""
    for size in range(min(len(data), len(mark) - 1), 0, -1):
        if data.endswith(mark[:size]):
            return size
    return 0
