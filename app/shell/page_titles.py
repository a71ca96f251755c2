"""Name the pages of the window. Free of Qt."""

from __future__ import annotations

_TITLES = {"cleanup": "Clean up", "code": "Your code", "hosts": "Machines"}
"""The titles of pages that are not just their capitalised names."""


def page_key(place: int) -> str:
    """Return the key of the page at this place of the rail, from 1; the tenth has Ctrl+0."""
    return f"Ctrl+{place % 10}"


def title(page: str) -> str:
    """Return the title of a page."""
    return _TITLES.get(page, page.capitalize())
