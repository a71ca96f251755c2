"""The window's texts are in every catalogue, complete, and each is translated in one way."""

from __future__ import annotations

import ast
import re

import pytest

from gpudeck.app.language import catalogues, texts
from gpudeck.app.language.catalogues import ROOT
from gpudeck.language.languages import LANGUAGES, Language

TRANSLATED = [language for language in LANGUAGES if language != "en"]
PLACEHOLDER = re.compile(r"\{(\w+)[^}]*\}")
OTHER_WORDS = {"de": r"\bAuftr[aä]g", "fr": r"\bt[aâ]ches?\b", "es": r"\b(trabajo|tarea)s?\b"}
"""Words that stand for a job elsewhere; here it is called a job in every language."""
OTHER_VOICE = {
    "de": r"(?<=[\w,] )(Sie|Ihnen|Ihr(e[mnrs]?)?)\b",
    "fr": r"(?i)\b(tu|toi)\b",
    "es": r"(?i)\b(tú|tus?|ti|contigo)\b",
}
"""Words of the other way to address a person: German says du, French vous, and Spanish usted. At
the beginning of a German sentence these words may mean things."""


@pytest.mark.parametrize("language", TRANSLATED)
def test_every_text_is_translated_and_no_other(language: Language) -> None:
    assert catalogues.missing(language) == []
    assert catalogues.unused(language) == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_translations_fill_in_the_values_of_their_texts(language: Language) -> None:
    for text, forms in catalogues.translations(language):
        wanted = set(PLACEHOLDER.findall(text)) - {"n"}
        for form in forms:
            found = set(PLACEHOLDER.findall(form)) - {"n"}
            assert found == wanted, f"{language}: {text!r} became {form!r}"


@pytest.mark.parametrize("language", TRANSLATED)
def test_everybody_is_addressed_in_one_way(language: Language) -> None:
    other = re.compile(OTHER_VOICE[language])
    found = [form for _, forms in catalogues.translations(language) for form in forms]
    assert not [form for form in found if other.search(form)]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Wählen Sie eines"),
        ("de", "Frag, was Ihre GPU tut"),
        ("fr", "Tu peux"),
        ("es", "tu GPU"),
    ],
)
def test_the_other_voice_would_be_found(language: Language, text: str) -> None:
    assert re.search(OTHER_VOICE[language], text)


def test_no_text_hides_from_the_catalogues_in_a_variable() -> None:
    """The catalogues are collected from literals in the calls."""
    hidden = []
    for file in sorted((ROOT / "assistant").rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            within = list(ast.walk(function))
            held = {
                node.targets[0].id: node.value.value
                for node in within
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            }  # fmt: skip
            hidden += [
                (file.name, held[call.args[0].id])
                for call in within
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                and call.func.attr == "text" and call.args
                and isinstance(call.args[0], ast.Name) and call.args[0].id in held
            ]  # fmt: skip
    assert hidden == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_job_has_one_name(language: Language) -> None:
    other = re.compile(OTHER_WORDS[language], re.IGNORECASE)
    means_it = re.compile(r"\bjobs?\b", re.IGNORECASE)
    has_other = re.compile(r"\b(orders?|works?)\b", re.IGNORECASE)  # these have words like it
    found = [
        form
        for text, forms in catalogues.translations(language)
        if means_it.search(text) and not has_other.search(text)
        for form in forms
        if other.search(form)
    ]
    assert found == []


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
