"""How many files a background process of ours may have open: each client, and each job that runs, takes one."""

from __future__ import annotations

import resource

_GIVEN = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_limit() -> None:
    """As many as this user may have at all. The usual limit of 1024 is there for programs that use select(2), which we do not."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_GIVEN[1], _GIVEN[1]))


def give_back(pid: int) -> None:
    """Let a process that we started, and what it starts, have the limit that we were given. Raises ProcessLookupError where it ended."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, _GIVEN)
