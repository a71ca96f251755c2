"""Say why a file is left as it is."""

from __future__ import annotations

from gpudeck.language.text import Text


class Refused(Exception):
    """Says in one line why a file is left as it is."""

    def __init__(self, why: Text) -> None:
        super().__init__(why)
        self.why = why
