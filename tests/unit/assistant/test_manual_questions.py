"""Test that the manual answers what people ask, and that its search finds the answer."""

from __future__ import annotations

import numpy as np
import pytest

from gpudeck.assistant.reader.encoder import Array, Encoder
from gpudeck.assistant.reader.labels import described
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.retrieval.ranking import features, features_of, find, vectors_of
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


def test_many_questions_have_the_features_that_each_has_by_itself() -> None:
    reader = shipped_reader()
    before = described("ask jobs", {"jobs=@it"}, (), "is 12 done?")
    asked = [("how do I stop it", before), ("wie stoppe ich es", ""), ("how do I stop it", ""),
             ("how do I hold it", ""), ("¿y eso también vale para los que esperan?", before),
             ("a question that is longer than all others " * 20, before)]  # fmt: skip
    together = features_of(asked, reader)
    alone = np.array([features(text, reader, said) for text, said in asked])
    np.testing.assert_allclose(together, alone, atol=2e-5)


def test_a_question_that_was_read_is_not_encoded_again_to_search_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = shipped_reader()
    vectors_of(reader.encoder.vector)  # sections that have changed are encoded once
    encoded: list[bool] = []
    states = Encoder.states

    def count(self: Encoder, ids: np.ndarray, trained: bool = False) -> Array:
        encoded.append(trained)
        return states(self, ids, trained)

    monkeypatch.setattr(Encoder, "states", count)
    reader.read("how do I put my next job on hold?", "ask jobs state")
    found = find("how do I put my next job on hold?", reader, "ask jobs state")
    assert encoded == [True, False] and "hold" in found[0][0].text


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
