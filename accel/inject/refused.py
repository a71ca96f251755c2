"""Say why a file is left as it is."""

from __future__ import annotations


class Refused(Exception):
    """Says in one line why a file is left as it is."""
