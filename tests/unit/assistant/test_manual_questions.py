"""Test that the manual answers what people ask, and that its search finds the answer."""

from __future__ import annotations

import pytest

from gpudeck.assistant.retrieval.sections import GLOSSARY, Section, sections
from gpudeck.assistant.tools.quotes import answering
from gpudeck.assistant.training.requests import is_held_out
from gpudeck.assistant.training.sections import asked_questions
from tests.unit.assistant.manual_questions import questions


def nearest(question: str, before: str = "") -> Section:
    return answering(question, before).quoted[0]


def test_each_question_has_an_answer_in_the_manual() -> None:
    asked = questions()
    assert len(asked) >= 100
    assert {one.language for one in asked} == {"en", "de", "fr", "es"}
    for one in asked:
        assert any(map(one.is_answered_by, sections())), one.text


def test_each_question_that_the_search_learns_from_has_a_section() -> None:
    places = {section.place for section in sections()}
    asked = asked_questions()
    assert len(asked) >= 1000
    assert {one.place for one in asked} <= places


def test_the_search_finds_the_page_and_the_section_of_most_questions() -> None:
    asked = [(one, nearest(one.text)) for one in questions()[::5]]
    assert sum(one.names_page_of(found) for one, found in asked) >= 0.75 * len(asked)
    assert sum(one.is_answered_by(found) for one, found in asked) >= 0.7 * len(asked)


def test_the_search_finds_the_section_of_half_of_what_unknown_people_ask() -> None:
    asked = [one for one in asked_questions() if is_held_out(one.profile)][::4]
    found = [answering(one.text, one.before).quoted for one in asked]
    right = [[section.place == one.place for section in quoted]
             for one, quoted in zip(asked, found, strict=True)]  # fmt: skip
    assert sum(one[:1] == [True] for one in right) >= 0.5 * len(asked)
    assert sum(map(any, right)) >= 0.55 * len(asked)


def test_two_sections_are_quoted_in_part_where_the_first_is_not_sure() -> None:
    found = [answering(one.text) for one in questions()[::10]]
    assert {len(one.quoted) for one in found} == {1, 2}
    assert all(len(one.quoted) + len(one.named) == 3 for one in found)
    pairs = [one for one in found if len(one.quoted) == 2]
    assert all(len(one.passages()) == 2 for one in pairs)


@pytest.mark.parametrize(
    ("question", "term"),
    [("what on earth is a tensor core", "tensor_core"), ("¿qué es interrumpible?", "preemptible")],
)  # fmt: skip
def test_the_meaning_of_a_word_is_found_in_the_glossary(question: str, term: str) -> None:
    found = nearest(question)
    assert (found.page, found.heading) == (GLOSSARY, term)
