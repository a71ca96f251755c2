"""Name the pages of the window. Free of Qt."""

from __future__ import annotations

_OWN = {"cleanup": "Clean up", "code": "Your code", "hosts": "Machines"}
"""The titles of pages that are not just their capitalised names."""
TITLES = ("Dashboard", "Workloads", "Processes", "Your code")
"""The longest titles, for which there is always room."""


def page_key(place: int) -> str:
    """Return the key of the page at this place of the rail, from 1; the tenth has Ctrl+0."""
    return f"Ctrl+{place % 10}"


def title(page: str) -> str:
    """Return the title of a page."""
    return _OWN.get(page, page.capitalize())
