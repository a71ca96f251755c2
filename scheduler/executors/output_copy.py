"""Bringing home what an attempt in a cluster printed: into the job's log, and how it ended into its exit record."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from scheduler.executors.base import EXIT_FILE, RESULT_FILE, Exit
from scheduler.executors.remote_runner import begin_line, end_mark
from scheduler.executors.runner import Cap
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED

MAX_WORD = 2**23
"""Bytes of the last line, in which JSON of a Result stands as a text."""


class Word(msgspec.Struct, frozen=True):
    """The last line: what the runner there says of the end."""

    started: float
    ended: float
    code: int | None
    error: str
    over: float
    result: str


class Sink:
    """Takes the output from its first byte on, however often it is read anew: what the log has already is passed over.

    What the cluster says before the command begins is not the command's, and is left out; where none begins, it is all there is.
    """

    def __init__(self, log: Path, attempt: str, limit: int = 0) -> None:
        """`limit`: bytes that the log may have; 0: any number."""
        self._begin, self._end = begin_line(attempt), end_mark(attempt)
        self._log = log
        self._fd = os.open(
            log,
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
            paths.PRIVATE_FILE,
        )
        self._skip = os.fstat(self._fd).st_size
        self._cap = Cap(self._fd, limit)
        self._held = b""
        """Bytes in which the beginning of a mark may stand."""
        self._phase = 0
        """0 before the command's output, 1 within, 2 behind."""

    def feed(self, data: bytes) -> None:
        """Raises OSError where the log cannot be written."""
        self._held += data
        if self._phase == 0:
            at = self._held.find(self._begin)
            if at < 0:
                self._held = self._held[-MAX_WORD:]
                return
            self._held, self._phase = self._held[at + len(self._begin) :], 1
        if self._phase == 1:
            at = self._held.find(self._end)
            if at >= 0:
                self._write(self._held[:at])
                self._held, self._phase = self._held[at:], 2
            else:
                keep = _overlap(self._held, self._end)
                self._write(self._held[: len(self._held) - keep])
                self._held = self._held[len(self._held) - keep :]
        if self._phase == 2:
            self._held = self._held[: MAX_WORD + 1]

    def close(self, whole: bool) -> None:
        """`whole`: there will be no more. Raises OSError."""
        try:
            if whole and self._phase < 2:  # of a command that never began, what the cluster says
                self._write(self._held)
        finally:
            os.close(self._fd)

    @property
    def word(self) -> Word | None:
        """What the runner there said at the end; None where it could not."""
        if self._phase < 2:
            return None
        try:
            return msgspec.json.decode(b"{" + self._held[len(self._end) :].lstrip(b", "), type=Word)
        except MALFORMED:
            return None

    def _write(self, data: bytes) -> None:
        passed = min(self._skip, len(data))
        self._skip -= passed
        left = memoryview(data)[passed:]
        while left:
            left = left[os.write(self._fd, left) :]
        self._cap.look()

    @property
    def uncapped(self) -> str:
        """Why the log is over its limit; empty where it is not."""
        return self._cap.error


def copy(
    output: Iterable[bytes], log: Path, attempt: str, limit: int = 0, whole: bool = True
) -> Sink:
    """The output, to its end, of which the log keeps `limit` bytes (0: all). `whole`: that of an attempt which is over."""
    sink, done = Sink(log, attempt, limit), False
    try:
        for data in output:
            sink.feed(data)
        done = whole
    finally:
        sink.close(done)
    return sink


def keep(folder: Path, exit_: Exit, result: str) -> None:
    """The exit record, after the result it goes with; synced and renamed into place. Raises OSError."""
    if result:
        _store(folder / RESULT_FILE, result.encode())
    _store(folder / EXIT_FILE, msgspec.json.encode(exit_))


def _store(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    with new.open("wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    new.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _overlap(data: bytes, mark: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `mark`."""
    for size in range(min(len(data), len(mark) - 1), 0, -1):
        if data.endswith(mark[:size]):
            return size
    return 0
