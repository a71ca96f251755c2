"""The window's texts are in every catalogue, complete, and each is translated in one way."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from gpudeck.app.language import messages, texts
from gpudeck.app.language.texts import LANGUAGES

TRANSLATED = [language for language in LANGUAGES if language != "en"]
PLACEHOLDER = re.compile(r"\{(\w+)[^}]*\}")


@pytest.mark.parametrize("language", TRANSLATED)
def test_every_text_of_the_window_is_translated_and_no_other(language: str) -> None:
    assert messages.missing(language) == {}
    assert messages.unused(language) == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_translations_fill_in_the_values_of_their_texts(language: str) -> None:
    for catalogue, text, forms in messages.translations(language):
        wanted = set(PLACEHOLDER.findall(text)) - {"n"}
        for form in forms:
            found = set(PLACEHOLDER.findall(form)) - {"n"}
            assert found == wanted, f"{language}, {catalogue}: {text!r} became {form!r}"


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_text_has_one_translation(language: str) -> None:
    found = defaultdict[str, set[tuple[str, ...]]](set)
    for _, text, forms in messages.translations(language):
        found[text].add(forms)
    assert [text for text, forms in found.items() if len(forms) > 1] == []


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_AT.UTF-8"}, "de"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "fr_FR.UTF-8"}, "fr"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "es_MX"}, "es"),
        ({"LANGUAGE": "nl:fr:de", "LANG": "de_DE.UTF-8"}, "fr"),
        ({"LANG": "ja_JP.UTF-8"}, "en"),
    ],
)
def test_the_desktop_names_its_language(environment: dict[str, str], language: str) -> None:
    assert texts.of_desktop(environment) == language
