"""Questions that people ask, with the sections of the manual that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpudeck.assistant.retrieval.sections import Section

_FILE = Path(__file__).parent / "data" / "manual_questions.tsv"


class Question(NamedTuple):
    """Hold a question with its answers."""

    language: str
    text: str
    answers: tuple[tuple[str, str], ...]
    """Pages with a heading; an empty heading stands for the whole page."""
    before: str = ""
    """What was asked before it, with its meaning."""

    def names_page_of(self, section: Section) -> bool:
        """Return whether a section's page has an answer."""
        return any(page == section.page for page, _ in self.answers)

    def is_answered_by(self, section: Section) -> bool:
        """Return whether a section is an answer."""
        return (section.page, section.heading) in self.answers or (
            (section.page, "") in self.answers)  # fmt: skip


def questions() -> list[Question]:
    """Return the questions."""
    rows = [line.split("\t") for line in _FILE.read_text(encoding="utf-8").splitlines()]
    return [Question(language, text, tuple(tuple(one.split("#", 1)) for one in answers.split("|")))  # type: ignore[misc]
            for language, answers, text in rows]  # fmt: skip
