"""Log truncation: keep a job's log within its size limit by punching a hole into its middle.

Standard library only, as the runner imports it.
"""

from __future__ import annotations

import ctypes
import errno
import os

PUNCH_HOLE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE, which goes with FALLOC_FL_KEEP_SIZE: fallocate(2)."""
USUAL_BLOCK = 4096
LIBC = ctypes.CDLL(None, use_errno=True)


class LogCap:
    """Keep a log within a limit: its first eighth, and the newest output in at least half of it.

    What lies between becomes a hole in the file, so that offsets into the log stay valid.
    """

    def __init__(self, log: int, limit: int) -> None:
        """Watch the log behind a file descriptor.

        Args:
            limit: bytes of output to keep; 0 keeps all.
        """
        self._log, self._limit, self._block = log, limit, _block_size(log)
        self._head = -(-limit // (8 * self._block)) * self._block  # holes are of whole blocks
        self._hole_end = self._head
        self._last_size = 0
        self.grows_fast = False
        """True where the log could be far over its limit at the next check, as it grew so much."""
        self.error = ""
        """Why the log is over its limit, where the file system refused the hole."""

    def enforce(self) -> None:
        """Drop what is over the limit, if the file system lets us."""
        if not self._limit:
            return
        try:
            self._enforce(os.fstat(self._log).st_size)
        except OSError as e:
            self.error = str(e.strerror)

    def _enforce(self, size: int) -> None:
        """Drop what is over the limit in a log of this size. Raises OSError."""
        self.grows_fast = size - self._last_size > self._limit // 64
        self._last_size = size
        if size < self._hole_end:  # it is short, or somebody emptied it
            self._hole_end = self._head
        end = (size - self._limit // 2) // self._block * self._block
        if self._head + size - self._hole_end > self._limit and end > self._hole_end:
            punch_hole(self._log, self._hole_end, end - self._hole_end)
            self._hole_end = end
        self.error = ""


def _block_size(log: int) -> int:
    """Return the block size of the log's file system; the usual one where it cannot be read."""
    try:
        return os.fstat(log).st_blksize
    except OSError:
        return USUAL_BLOCK


def punch_hole(file: int, start: int, length: int) -> None:
    """Free the disk space of a part of the file, which reads as zeros then. Raises OSError."""
    while LIBC.fallocate(file, PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
