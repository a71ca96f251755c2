"""Requests as the small model reads them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.intents.normalize import LONGEST, SHORTEST, WORDS, bare, plain, typo_candidates
from assistant.training import words
from assistant.training.phrasings import grammar, sentences
from assistant.training.requests import LANGUAGES


@pytest.mark.parametrize(
    ("request_", "read"),
    [
        ("What's teh TEMPERATRE of gpu {n1}??", "whats teh temperature of gpu {n1}"),
        ("Ist die GRÖSSTE Grafikkarte heiß?", "ist die grosste grafikkarte heiss"),
        ("¿Cuánta memoría libre queda?", "cuanta memoria libre queda"),
        (
            "RÉSUMÉ des travaux annulés, échoué? canceló",
            "resumé des travaux annules echoué canceló",
        ),
        ("L'énergie, s'il te plaît...", "lenergie sil te plait"),
        (
            "How busy are the CPUs? Is CPU {n1} hot? With 4 CPUs?",
            "how busy are the gpus is cpu {n1} hot with 4 cpus",
        ),
        ("cancell my last jbo {n1} — now!", "cancel my last jbo {n1} now"),
        ("re-run {w1} at {t1}, 70 %", "re-run {w1} at {t1} 70 %"),
        ("   ", ""),
    ],
)
def test_capitals_punctuation_accents_and_typos_are_removed(request_, read) -> None:
    assert plain(request_) == read


_PIECES = [*"aeot {}%/.'-ÄÉÓßİ℡｛①½\u0301\u0308\u0345日 ", "{n1}", "{w2}", "temprature", "QUEUE "]


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_slots_stay_and_normalizing_twice_changes_nothing(text) -> None:
    read = plain(text)
    assert re.findall(r"\{[nwt]\d\}", read) == re.findall(r"\{[nwt]\d\}", text)
    assert plain(read) == read == read.strip() and not set(read) & set("?!.,;'ÄÉ")


def test_taught_short_and_distant_words_are_left_alone() -> None:
    for word in ("queue", "queued", "hto", "qqqqqqq", "{temprature}", "temprature" * 200):
        assert plain(word) == word
    assert len("hto") < SHORTEST


def test_a_typo_is_one_wrong_letter_and_never_the_first() -> None:
    for typed in ("queeu", "quue", "quueue", "qusue"):
        assert "queue" in typo_candidates(typed), typed
    for other in ("wueue", "ueue", "queuex", "quxue", "qquueue"):
        assert "queue" not in typo_candidates(other), other


@pytest.mark.parametrize(
    "word",
    [
        "senden",
        "passieren",
        "skilled",
        "cancer",
        "stomp",
        "retro",
        "purse",
        "presume",
        "deplete",
        "germinate",
    ],
)
def test_a_word_that_resembles_a_command_is_not_one(word) -> None:
    assert plain(word) == word


@pytest.mark.slow
def test_no_two_tools_share_a_normalized_phrasing() -> None:
    """Held-out phrasings, too: a typo is never mended into the opposite."""
    for language in LANGUAGES:
        tools: dict[str, tuple[str, tuple[str, str]]] = {}
        for name, section in grammar(language).sections.items():
            for line in section:
                for sentence in sentences(line.text):
                    other, tool = tools.setdefault(plain(sentence), (sentence, name))
                    assert tool == name, (language, sentence, other, tool)


@pytest.mark.slow
def test_the_taught_words_are_those_of_the_phrasings() -> None:
    assert words.taught() == WORDS.read_text(encoding="utf-8").split(), (
        "renew them: python -m assistant.training.words"
    )
    assert all(
        word == bare(word) and word.isalpha() and len(word) <= LONGEST for word in words.taught()
    )
