"""Name the pages of the window. Free of Qt."""

from __future__ import annotations

_TITLES = {"cleanup": "Clean up"}
"""The titles of pages that are not just their capitalised names."""


def title(page: str) -> str:
    """Return the title of a page."""
    return _TITLES.get(page, page.capitalize())
