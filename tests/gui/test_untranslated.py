"""Every text of the window goes through the catalogues, so that each language is complete."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from tests.gui.untranslated import PAGES, accented, untranslated

pytestmark = pytest.mark.xdist_group("untranslated")  # one window for all pages


@pytest.fixture(scope="module")
def found(qapp: QApplication) -> dict[str, list[str]]:
    """Return what is untranslated on each page, all looked at in one window."""
    return untranslated([*PAGES])


@pytest.mark.parametrize("page", PAGES)
def test_every_text_of_the_page_can_be_translated(found: dict[str, list[str]], page: str) -> None:
    assert found[page] == [], "see `python -m tests.gui.untranslated`"


def test_a_text_in_the_pseudo_language_keeps_its_values_and_markup() -> None:
    assert accented("Job {job} of <b>{user}</b>&nbsp;ran") == "Ĵóƀ {job} óƒ <b>{user}</b>&nbsp;ŕáń"
