"""Test that the manual answers what people ask, and that its search finds the answer."""

from __future__ import annotations

from gpudeck.assistant.retrieval.sections import Section, sections
from gpudeck.assistant.tools.quotes import answering
from tests.unit.assistant.manual_questions import questions


def nearest(question: str) -> Section:
    (found,) = answering(question)
    return next(one for one in sections() if found.file == f"{one.page}.md"
                and found.heading == one.heading)  # fmt: skip


def test_each_question_has_an_answer_in_the_manual() -> None:
    asked = questions()
    assert len(asked) >= 100
    assert {one.language for one in asked} == {"en", "de", "fr", "es"}
    for one in asked:
        assert any(map(one.is_answered_by, sections())), one.text


def test_the_search_finds_the_page_of_most_questions() -> None:
    asked = questions()[::5]
    found = [one.names_page_of(nearest(one.text)) for one in asked]
    assert sum(found) >= 0.6 * len(asked)
