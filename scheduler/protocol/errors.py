"""The two families of failure: what the user or the machine can put right, and our own bugs (any other exception)."""

from __future__ import annotations

MALFORMED = (ValueError, RecursionError)
"""What decoding foreign JSON can raise: wrong syntax, types or UTF-8 (all ValueErrors), or nesting deeper than the stack."""


class UserError(Exception):
    """Something the user or the environment can put right. The message is one line: what is wrong, what to do."""


class NotFound(UserError):
    """The thing that was named (a job, a file, a workload) does not exist."""


class DaemonGone(UserError):
    """The daemon does not answer, or went away in the middle of a request."""
