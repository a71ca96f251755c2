"""The pages of the manual that F1 shows. Free of Qt."""

from __future__ import annotations

import re
from typing import NamedTuple

PAGE_OF = {
    "dashboard": "monitor",
    "device": "monitor",
    "processes": "monitor",
    "jobs": "queue",
    "workloads": "attention",
    "code": "injection",
    "assistant": "assistant",
    "models": "models",
    "alerts": "alerts",
    "hosts": "machines",
    "settings": "settings",
    "cleanup": "cleaning-up",
}
"""The page of the manual for each page of the window."""


class ManualPage(NamedTuple):
    """Hold one page of the manual."""

    name: str
    title: str
    text: str
    """Markdown."""


_HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")


def section_of(text: str, heading: str) -> str:
    """Return a section with those below it; empty if no heading of the page is so."""
    found: list[str] = []
    level = 0
    for line in text.splitlines():
        match = _HEADING.match(line)
        if match and level and len(match[1]) <= level:
            break
        if match and not level and match[2] == heading:
            level = len(match[1])
        found += [line] if level else []
    return "\n".join(found)


def manual_pages() -> list[ManualPage]:
    """Return all pages, in the order of their files."""
    from gpudeck.assistant.retrieval import manual  # the window opens without it

    pages = []
    for file in manual.files():
        text = file.read_text(encoding="utf-8")
        first = next((line for line in text.splitlines() if line.startswith("# ")), file.stem)
        pages.append(ManualPage(file.stem, first.removeprefix("# "), text))
    return pages
