"""The window in another language than English: Qt's own texts, memory, keys and times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QTranslator
from PySide6.QtGui import QFont, QFontMetricsF
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit

from gpudeck.app.format.values import GIB, ago, duration, format_field, significant
from gpudeck.app.jobs.form import JobForm
from gpudeck.app.language import texts
from gpudeck.app.models.model_list import parameters
from gpudeck.app.settings.form import SETTINGS, change
from gpudeck.app.shell.desktop import translate
from gpudeck.app.shell.memory import WindowMemory
from gpudeck.app.shell.page_titles import titles
from gpudeck.app.shell.palette_model import action_entries, rank
from gpudeck.app.shell.rail import Rail
from gpudeck.app.shell.sheets import shortcut_groups
from gpudeck.app.shell.window import PAGES
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import ask_save_path, pill, set_pill
from gpudeck.app.workloads.result_export import as_csv
from gpudeck.assistant.library.describe import Model
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.support import state_folder


@pytest.fixture
def german(qapp: QApplication, clean_qt: None, tmp_path: Path) -> Iterator[None]:
    """Let the settings choose German, as when the window is opened, and English again."""
    with state_folder(tmp_path / "home"):
        settings.save(Settings(language="de"))
        translate(qapp)
        yield
        for translator in qapp.findChildren(QTranslator):
            qapp.removeTranslator(translator)
        texts.use("en")


@pytest.mark.usefixtures("german")
def test_menus_and_dialogs_of_qt_are_german(fed: Fed) -> None:
    line = QLineEdit(fed.window)
    menu = line.createStandardContextMenu()
    names = [action.text().partition("\t")[0].replace("&", "") for action in menu.actions()]
    assert {"Kopieren", "Einfügen", "Alles auswählen"} <= set(names)
    menu.deleteLater()
    ask_save_path(fed.window, "Bericht", "bericht.pdf", "PDF (*.pdf)", lambda _: None)
    (dialog,) = fed.window.findChildren(QFileDialog)
    assert "Speichern" in dialog.labelText(QFileDialog.DialogLabel.Accept).replace("&", "")
    dialog.reject()
    fed.settle()


@pytest.mark.usefixtures("german")
def test_widths_of_columns_are_remembered_in_every_language(qapp: QApplication) -> None:
    in_german = Fed(qapp)
    in_german.window.show_page("processes")
    memory = WindowMemory(in_german.window)
    in_german.window.processes.table.horizontalHeader().resizeSection(1, 147)
    memory.save()
    in_german.window.close()
    texts.use("en")
    in_english = Fed(qapp)
    WindowMemory(in_english.window).restore()
    assert in_english.window.shown == "processes"
    assert in_english.window.processes.table.accessibleName() == "Processes"
    assert in_english.window.processes.table.horizontalHeader().sectionSize(1) == 147
    for made in (in_german, in_english):
        made.window.close()
        made.window.deleteLater()


@pytest.mark.usefixtures("german")
def test_the_palette_finds_actions_by_words_of_both_languages() -> None:
    entries = action_entries(lambda _: None, "jobs")
    for typed in ("Job erneut", "wiederholen", "repeat"):
        assert rank(entries, typed)[0].title == "Job erneut ausführen", typed
    assert rank(entries, "Job erneut")[0].keys == "Strg+R"


@pytest.mark.usefixtures("german")
def test_shortcuts_are_listed_below_the_titles_of_the_pages() -> None:
    groups = shortcut_groups(PAGES)
    assert [*groups][:2] == ["Überall", "Übersicht"]
    assert ("Alarme anzeigen", "Ctrl+6") in groups["Überall"]


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("en", ("just now", "5 min ago", "3 h ago", "1 day ago", "2 days ago"), "in 2 days"),
        ("de", ("gerade eben", "vor 5 min", "vor 3 h", "vor 1 Tag", "vor 2 Tagen"), "in 2 Tagen"),
        ("fr", ("à l'instant", "il y a 5 min", "il y a 3 h", "il y a 1 jour", "il y a 2 jours"),
         "dans 2 jours"),
        ("es", ("ahora mismo", "hace 5 min", "hace 3 h", "hace 1 día", "hace 2 días"),
         "en 2 días"),
    ],
)  # fmt: skip
def test_how_long_ago_is_said_in_the_language(
    language: Literal["en", "de", "fr", "es"], before: tuple[str, ...], after: str
) -> None:
    texts.use(language)
    try:
        spans = (2.0, 310.0, 3 * 3600.0, 86400.0, 2 * 86400.0)
        assert tuple(ago(0.0, span) for span in spans) == before
        assert ago(2 * 86400.0, 0.0) == after
    finally:
        texts.use("en")


@pytest.mark.usefixtures("german")
def test_figures_have_a_decimal_comma_and_what_is_parsed_again_a_point() -> None:
    assert format_field("mem_used", 1.4 * GIB).text == "1,4"
    assert significant(2.345) == "2,35" and duration(4.2) == "4,2 s"
    exported = as_csv(snapshots.result())
    texts.use("en")
    assert exported == as_csv(snapshots.result())
    assert duration(4.2) == "4.2 s"


@pytest.mark.usefixtures("german")
def test_a_decimal_comma_may_be_typed_where_the_language_has_one() -> None:
    price = next(one for one in SETTINGS if one.name == "energy_price")
    form = JobForm()
    form.values |= {"command": "true", "memory": "1,5 GiB", "tags": "a,5"}
    for language in ("de", "fr", "es"):
        texts.use(language)
        assert change(Settings(), price, "0,35") == Configure({"energy_price": 0.35})
        assert change(Settings(), price, "0.35") == Configure({"energy_price": 0.35})
        spec = form.spec()
        assert spec is not None and spec.memory == 1.5 * GIB and spec.tags == ("a", "5")
    texts.use("en")
    assert form.spec() is None
    with pytest.raises(UserError, match="must be a number"):
        change(Settings(), price, "0,35")


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_titles_of_pages_have_room_in_the_rail(
    qapp: QApplication, language: Literal["de", "fr", "es"]
) -> None:
    texts.use(language)
    try:
        metrics = QFontMetricsF(theme.font(theme.SMALL))
        room = Rail(PAGES).buttons["jobs"].sizeHint().width()
        assert [t for t in titles() if metrics.horizontalAdvance(t) > room - 2 * theme.XS] == []
    finally:
        texts.use("en")


@pytest.mark.usefixtures("german")
def test_states_spans_and_sizes_are_written_as_in_german(fed: Fed) -> None:
    state = pill()
    set_pill(state, "wird nicht mehr bedient", "accent")
    assert state.text() == "Wird nicht mehr bedient"
    assert state.font().capitalization() == QFont.Capitalization.MixedCase
    spans = [button.text() for button in fed.window.dashboard.bar.spans]
    assert spans == ["1 min", "10 min", "1 h", "6 h", "1 T", "7 T", "30 T"]
    large = Model("/m/llama", "llama", parameters=8_030_261_248)
    assert parameters(large) == "8,03 Mrd."
    assert parameters(replace(large, parameters=134_500_000)) == "134 Mio."
