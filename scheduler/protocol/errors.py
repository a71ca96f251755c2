"""Errors that the user or the environment can correct; any other exception is a bug."""

from __future__ import annotations

MALFORMED = (ValueError, RecursionError)
"""Errors of decoding foreign JSON: wrong syntax, types or UTF-8 (ValueError), or deep nesting."""


class UserError(Exception):
    """Report what is wrong and what to do, in one line, for the user to correct."""


class NotFound(UserError):
    """Report that a job, a file or a workload that was named does not exist."""


class DaemonGone(UserError):
    """Report that the daemon does not answer, or ended during a request."""
