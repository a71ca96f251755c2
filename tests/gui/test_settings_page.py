"""The settings page shows the current settings and requests changes."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QFileDialog

from gpudeck.app.language import texts
from gpudeck.app.settings.form import SETTINGS, first_sentence
from gpudeck.app.settings.setting_row import SettingRow
from gpudeck.app.state import State
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.snapshots import NOW
from tests.gui.test_other_machines import with_hosts


def test_the_page_shows_the_current_settings(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot(settings=Settings(telemetry_hz=5, source="cpu")))
    rows = fed.window.settings.rows
    assert (rows["telemetry_hz"].text(), rows["source"].text(), rows["theme"].text()) == (
        "5",
        "cpu",
        "system",
    )
    assert "GPU Deck 0." in fed.window.settings.about.toPlainText()


def test_a_change_is_requested_and_an_error_is_explained(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    row = fed.window.settings.rows["telemetry_hz"]
    row.line.setText("99")
    row.line.editingFinished.emit()
    assert row.error.isVisible()
    assert fed.asked == []
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert row.line.text() == "99"  # what was typed stays until it is put right
    row.line.setText("4")
    row.line.editingFinished.emit()
    assert fed.asked == [Configure({"telemetry_hz": 4.0})]
    assert not row.error.isVisible()
    fed.fail(Configure, "the disk is full: free some space")
    assert row.error.text() == "the disk is full: free some space"
    fed.reply(
        Configure,
        Settings(telemetry_hz=4),
    )
    assert not row.error.isVisible()


def test_a_choice_is_requested(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.settings.rows["theme"].box.textActivated.emit("dark")
    assert fed.asked == []  # nothing was chosen yet
    box = fed.window.settings.rows["theme"].box
    assert [box.itemText(at) for at in range(box.count())] == ["As the desktop", "Light", "Dark"]
    box.setCurrentText("Dark")
    fed.window.settings.rows["theme"].box.textActivated.emit("dark")
    assert fed.asked == [Configure({"theme": "dark"})]


def test_a_change_without_a_daemon_is_reported(fed):
    fed.window.show_page("settings")
    row = fed.window.settings.rows["telemetry_hz"]
    row.line.setText("4")
    row.line.editingFinished.emit()
    assert "daemon does not answer" in row.error.text()


def test_settings_are_searched_and_a_group_is_shown(fed):
    fed.feed(snapshots.gpu_snapshot(1))
    fed.window.show_page("settings")
    page = fed.window.settings
    page.search.setText("slow-down temperature")
    shown = {name for name, row in page.rows.items() if row.isVisible()}
    assert "alert_temperature" in shown
    assert "theme" not in shown
    assert not page.cards["Appearance"].isVisible()
    page.search.setText("no such setting anywhere")
    assert page.nothing.isVisible()
    page.groups["Alerts"].click()
    fed.settle()
    assert page.search.text() == ""
    assert page.rows["webhook"].isVisible()
    assert page.groups["Alerts"].isChecked()
    assert page.area.verticalScrollBar().value() > 0


def test_a_setting_is_reset_in_its_row(fed):
    fed.feed(snapshots.gpu_snapshot(1, settings=Settings(alert_memory=80.0)))
    fed.window.show_page("settings")
    page = fed.window.settings
    assert not page.rows["alert_temperature"].reset.isVisible()
    reset = page.rows["alert_memory"].reset
    assert reset.isVisible()
    reset.click()
    assert fed.asked == [Configure({"alert_memory": 97.0})]


def test_the_help_is_one_line_and_the_rest_is_shown_on_demand(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    for row in fed.window.settings.rows.values():
        assert len(row.help.text()) <= 100, row.setting.title
        whole = row.help.text() == row.setting.help
        assert row.more.isVisible() != whole, row.setting.title
    row = fed.window.settings.rows["source"]
    assert row.help.text() == "The devices to watch."
    row.more.click()
    assert row.help.text() == row.setting.help and row.more.isChecked()
    row.more.click()
    assert row.help.text() == "The devices to watch." and not row.more.isChecked()
    fed.window.settings.search.setText("replay:file")
    assert row.isVisible(), "what is not shown is searched, too"


def test_settings_begin_at_the_title_and_take_as_many_columns_as_have_room(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.settings
    for width, columns in ((800, 1), (1280, 1), (1800, 2), (2560, 3)):
        fed.window.resize(width, 1440)
        fed.settle()
        places = [made.mapTo(page, QPoint(0, 0)) for made in page.cards.values()]
        assert len({place.x() for place in places}) == columns
        assert page.search.mapTo(page, QPoint(0, 0)).x() == 0, "they begin where the title does"
        assert all(row.width() <= 820 for row in page.rows.values()), "lines are read with ease"
        assert places == sorted(places, key=lambda place: (place.x(), place.y())), "in their order"
    fed.window.resize(800, 560)
    fed.settle()
    heights = [made.mapTo(page._panels[0], QPoint(0, 0)).y() for made in page.cards.values()]
    assert heights == sorted(heights), "they are in their order again in one column"
    page.show_group("Energy")
    fed.settle()
    top = page.cards["Energy"].mapTo(page.area.viewport(), QPoint(0, 0)).y()
    assert 0 <= top < 200 and page.groups["Energy"].isChecked()


@pytest.fixture
def german(qapp):
    texts.use("de")
    yield
    texts.use("en")


def test_a_row_speaks_the_language_of_the_window(german):
    setting = next(setting for setting in SETTINGS if setting.name == "telemetry_hz")
    row, state = SettingRow(setting), State()
    state.snapshot = snapshots.cpu_snapshot()
    assert row.title == "Messrate"
    assert row.help.text().startswith("Messungen pro Sekunde")
    assert row.matches(["messrate"]) and row.matches(["telemetry_hz"]) and row.matches(["rate"])
    for typed, said in (("99", "höchstens 10"), ("viel", "Messrate: eine Zahl, nicht 'viel'")):
        row.submit(typed, state, row, None, lambda _: None)
        assert said in row.error.text()


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_the_first_sentence_of_a_help_is_short_in_every_language(qapp, language):
    texts.use(language)
    try:
        for setting in SETTINGS:
            shown = texts.tr(setting.help)
            assert len(first_sentence(shown)) <= 125, setting.name
            assert shown.count(". ") == setting.help.count(". "), "an abbreviation would end it"
    finally:
        texts.use("en")


def test_sources_are_named_in_words_and_a_recording_by_its_file(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot(settings=Settings(source="replay:/home/ada/night.trace.gz*8")))
    row = fed.window.settings.rows["source"]
    assert row.box.currentText() == "Recording night.trace.gz as 8 GPUs"
    assert row.text() == "replay:/home/ada/night.trace.gz*8"
    assert row.box.toolTip() == "/home/ada/night.trace.gz*8"
    choices = [row.box.itemText(at) for at in range(row.box.count())]
    assert choices[:3] == ["Automatic", "NVIDIA GPUs", "The CPU"]
    row.box.setCurrentIndex(1)
    row.box.textActivated.emit("NVIDIA GPUs")
    assert fed.asked == [Configure({"source": "nvml"})]


def test_a_recording_is_opened_from_a_file_and_leaving_that_changes_nothing(fed, monkeypatch):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    row, chosen = fed.window.settings.rows["source"], ["", "/data/run.trace.gz"]
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (chosen.pop(0), ""))
    for asked in ([], [Configure({"source": "replay:/data/run.trace.gz"})]):
        row.box.setCurrentIndex(row.box.count() - 1)
        row.box.textActivated.emit(row.box.currentText())
        assert row.box.currentText() == "Automatic" and fed.asked == asked


def test_gpus_to_drain_are_offered_and_added_to_the_list(fed):
    fed.window.show_page("settings")
    fed.feed(with_hosts(snapshots.gpu_snapshot(2, settings=Settings(drained="1"))))
    row = fed.window.settings.rows["drained"]
    assert row.box.itemText(0).startswith("GPU 0 · ") and row.box.count() == 2, "of this machine"
    for at, drained in ((0, "1, 0"), (1, "")):
        row.box.activated.emit(at)
        assert row.text() == drained and fed.asked[-1] == Configure({"drained": drained})


def test_a_refreshed_value_does_not_replace_what_is_being_typed(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.activateWindow()
    row = fed.window.settings.rows["telemetry_hz"]
    row.line.setFocus()
    fed.settle()
    assert row.line.hasFocus()
    row.line.setText("7")
    fed.feed(snapshots.cpu_snapshot(NOW + 1, settings=Settings(telemetry_hz=3)))
    assert row.line.text() == "7"
