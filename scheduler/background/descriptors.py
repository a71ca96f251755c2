"""The limit of open files (each client and each running job takes one), and the descriptors of
other processes."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)
_PIDFD_GETFD = 438
"""The number of the system call, which is the same on all architectures."""


def raise_limit() -> None:
    """Raise the limit to this user's maximum.

    The usual limit of 1024 protects programs that use select(2), which we do not.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (_INHERITED[1], _INHERITED[1]))


def restore_limit(pid: int) -> None:
    """Give a child, and its children, the limit that we inherited. Raises ProcessLookupError."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)


@contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    """Open a descriptor that stands for a process. Raises OSError."""
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


def copy_descriptor(process: int, fd: int) -> int:
    """Return a copy of another process's descriptor, which shares its locks.

    Args:
        process: A descriptor that stands for the process.
        fd: The number of the descriptor there.

    Raises:
        OSError: The kernel is older than Linux 5.6, or forbids it (see pidfd_getfd(2)).
    """
    copied = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, fd, 0))
    if copied < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return copied
