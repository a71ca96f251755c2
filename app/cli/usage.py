"""What is wrong with a command line beyond what its parser sees."""

from __future__ import annotations

DEFAULT_TOUR = "gpudeck-tour"
"""Where a tour leaves its pictures."""


class UsageError(Exception):
    """The command line itself is wrong: exit status 2."""
