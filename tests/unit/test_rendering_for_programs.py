"""Texts are English in what programs read, and grouped numbers follow the reader's language."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.language.languages import Language
from gpudeck.language.rendering import json_in_english, render
from gpudeck.language.text import Number, phrase


def test_json_has_each_text_in_english_and_keeps_everything_else():
    text = phrase("cell {n}: {what}", n=3, what=phrase("the file is not text"))
    foreign = {"type": "text", "text": "a message"}, {"type": "text", "key": 7}
    encoded = msgspec.json.encode({"why": [text], "other": foreign, "size": 2.5})
    assert msgspec.json.decode(json_in_english(encoded)) == {
        "why": ["cell 3: the file is not text"],
        "other": list(foreign),
        "size": 2.5,
    }


def test_json_without_texts_keeps_its_bytes():
    encoded = b'{"a":1e999,"a":2}'
    assert json_in_english(encoded) is encoded


@pytest.mark.parametrize(
    ("language", "shown"),
    [("en", "12,048 x 1.5 s"), ("de", "12.048 x 1,5 s"), ("fr", "12\u202f048 x 1,5 s"),
     ("es", "12.048 x 1,5 s")],
)  # fmt: skip
def test_digits_are_grouped_as_in_the_language(language: Language, shown: str) -> None:
    text = phrase("{n} x {m}", n=Number(12048, ","), m=Number(1.5, ".1f", "s"))
    assert render(text, language) == shown
