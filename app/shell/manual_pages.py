"""The pages of the manual that F1 shows. Free of Qt."""

from __future__ import annotations

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


def manual_pages() -> list[ManualPage]:
    """Return all pages, in the order of their files."""
    from gpudeck.assistant.retrieval import manual  # the window opens without it

    pages = []
    for file in manual.files():
        text = file.read_text(encoding="utf-8")
        first = next((line for line in text.splitlines() if line.startswith("# ")), file.stem)
        pages.append(ManualPage(file.stem, first.removeprefix("# "), text))
    return pages
