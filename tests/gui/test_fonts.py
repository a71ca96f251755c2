"""The typefaces that come with the program have every character that the window shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QFont, QRawFont
from PySide6.QtWidgets import QApplication

from gpudeck.app.widgets import fonts, theme
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.language.words import CATALOGUES

ROOT = Path(__file__).parents[2]
INVISIBLE = "\u2060\ue000\ufffc"
"""What Qt takes out or replaces before it draws."""
SCOPED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(file: Path) -> Iterator[str]:
    """Yield the texts of a module except its docstrings."""
    tree = ast.parse(file.read_text())
    about = {id(n.body[0].value) for n in ast.walk(tree)
             if isinstance(n, SCOPED) and n.body and isinstance(n.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield node.value


def shown() -> set[str]:
    """Return the characters of the window's texts in all languages, and of the manual."""
    found = set[str]()
    for file in (ROOT / "app").rglob("*.py"):
        if "cli" not in file.parts:
            found.update(*texts(file))
    for file in (*CATALOGUES.glob("*.po"), *(ROOT / "docs").glob("*.md")):
        found |= set(file.read_text())
    return {c for c in found if c.isprintable()} - set(INVISIBLE)


@pytest.mark.parametrize("strong", [False, True])
def test_no_character_of_the_window_comes_from_a_font_of_the_system(
    qapp: QApplication, strong: bool
) -> None:
    theme.apply(qapp, "light")
    font = QRawFont.fromFont(theme.font(strong=strong))
    assert font.familyName() == fonts.FAMILY
    assert [c for c in sorted(shown()) if not font.supportsCharacter(ord(c))] == []


def test_code_is_set_in_the_typeface_that_comes_with_the_program(qapp: QApplication) -> None:
    theme.apply(qapp, "light")
    font = QRawFont.fromFont(theme.monospace())
    assert font.familyName() == fonts.MONOSPACE
    frames = map(chr, range(0x2500, 0x25A0))  # lines and blocks, of which programs draw tables
    assert [c for c in frames if not font.supportsCharacter(ord(c))] == []
    view = SafeText()
    view.show_markdown("**9 jobs** and *1 more*")
    weight = view.document().find("9 jobs").charFormat().fontWeight()
    assert weight == QFont.Weight.DemiBold, "a bolder typeface does not come with the program"
    view.show_markdown("Run `first`:\n\n```\nsecond\n\nthird\n```\n\nThat is *all*.")
    named = {}
    for word in ("Run", "first", "second", "third", "all"):
        named[word] = view.document().find(word).charFormat().fontFamilies()
    code = [fonts.MONOSPACE]
    assert named == {"Run": None, "first": code, "second": code, "third": code, "all": None}
