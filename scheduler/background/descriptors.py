"""The limit of open files: each client and each running job takes one."""

from __future__ import annotations

import resource

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_limit() -> None:
    """Raise the limit to this user's maximum.

    The usual limit of 1024 protects programs that use select(2), which we do not.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (_INHERITED[1], _INHERITED[1]))


def restore_limit(pid: int) -> None:
    """Give a child, and its children, the limit that we inherited. Raises ProcessLookupError."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
