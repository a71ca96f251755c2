"""The assistant page shows answers as they are written."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QTextDocument
from PySide6.QtTest import QTest

from gpudeck.app.assistant.conversation_view import ConversationView
from gpudeck.app.assistant.message_tree import Curve
from gpudeck.app.assistant.presets import own_presets
from gpudeck.app.assistant.requests import Ask, FinishedAnswer, WriteBrief, finished
from gpudeck.app.format.values import clock
from gpudeck.app.language import texts
from gpudeck.app.models.requests import ListModels
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.widgets import theme
from gpudeck.assistant.facts import Fact
from gpudeck.assistant.host_protocol import Answer, Chunk, Waiting
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.query.request import Query
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import served, snapshots


def test_an_answer_with_its_writer_and_sources(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.view
    assert page.empty.isVisible()
    QTest.keyClicks(page.composer.input, "how hot was it?")
    QTest.keyClick(page.composer.input, Qt.Key.Key_Return)
    (ask,) = fed.asked
    assert isinstance(ask, Ask)
    assert ask.text == "how hot was it?"
    fed.event(Waiting("waiting for idle devices (GPU 0: utilisation 98 %)"))
    qtbot.waitUntil(lambda: "utilisation 98 %" in page.messages.views[1].note.text())
    fed.event(Chunk("It was **61"))
    qtbot.waitUntil(lambda: "61" in page.messages.views[1].text.toPlainText())
    assert page.composer.stop.isVisible()
    assert not page.composer.send.isEnabled()
    fed.answer(
        FinishedAnswer(
            "It was **61 °C**.",
            "template",
            (("Temperature: 61 °C", "61 °C", "reading"),),
            tool="answer devices measure=temp",
            reader="model request-reader",
        )
    )
    shown = page.messages.views[1]
    qtbot.waitUntil(page.composer.send.isEnabled)
    assert page.composer.where.text() == "No language model is in use; templates write the answers"
    assert page.messages.views[1].text.toPlainText() == "It was 61 °C."
    assert re.fullmatch(r"\d\d:\d\d", shown.writer.text()), "the line below says who writes"
    assert not shown.details.isVisible()
    shown.details_button.click()
    table = [
        line.replace("\xa0", " ")
        for line in shown.details.toPlainText().splitlines()
        if line.strip()
    ]
    assert table == [
        "Query", "answer devices measure=temp", "Read by", "the encoder of GPU Deck",
        "Written by", "a template", "reading", "Temperature: 61 °C",
    ]  # fmt: skip
    fed.feed(snapshots.cpu_snapshot(snapshots.NOW + 1, settings=Settings(model_folder="/m/tiny")))
    qtbot.waitUntil(lambda: shown.writer.text().startswith("Written by a template · "))


@pytest.mark.parametrize("width", [1280, 700])
def test_the_details_say_each_thing_once_in_whole_words_and_in_german(fed, width):
    note = "Diese Werte sind eine Aufzeichnung (REPLAY von h100.trace.gz) und keine der Karte."
    history, now = (
        phrase(template, source="REPLAY")
        for template in ("{source} readings, history", "{source} readings")
    )
    facts = tuple(
        Fact("a.b", said, "", said, source, 0.0, text)
        for text, said, source in [
            ("GPU 0 Temperatur: 46 °C", "46 °C", now),
            (note, note, history),
            ("Anzahl: 1", "Anzahl: 1", now),
        ]
    )
    call = Query("devices", measure="temp")
    texts.use("de")
    try:
        answer = finished(Answer("46 °C", "template", "answer", facts, call=call))
        view = fed.window.assistant.view
        fed.window.resize(width, 800)
        fed.feed(snapshots.cpu_snapshot())
        fed.window.show_page("assistant")
        view.show_answer("wie warm?", answer)
        fed.settle()
        view.messages.views[1].details_button.click()
        fed.settle()
    finally:
        texts.use("en")
    details, at = view.messages.views[1].details, clock(0.0)
    lines = []
    block = details.document().begin()
    while block.isValid():
        layout, text = block.layout(), block.text()
        starts = [layout.lineAt(i).textStart() for i in range(1, layout.lineCount())]
        assert all(text[start - 1] in " \xa0" for start in starts), f"a word is broken: {text}"
        lines += [text.replace("\xa0", " ")] if text else []
        block = block.next()
    assert lines[-5:] == [
        f"Messwerte von REPLAY, {at}", "GPU 0 Temperatur: 46 °C", "Anzahl: 1",
        f"Messwerte von REPLAY, Verlauf, {at}", note,
    ]  # fmt: skip
    view.messages.views[1].text.cited.emit([1])
    captions = details.cursorRect(details.document().find("answer devices")).left()
    assert captions < 200, "captions take no more room than they need"
    cursor = details.document().find(note)
    cell = cursor.currentTable().cellAt(cursor)
    marked = cell.format().background().color()
    assert marked == QColor(theme.tokens().accent_soft), "the fact of the citation is marked"


def test_the_two_buttons_and_stop(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.view
    page.composer.happened.click()
    page.composer.stop.click()
    page.composer.brief.trigger()
    QTest.keyClick(fed.window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not fed.window.assistant.view.conversation.busy)
    assert [type(r) for r in fed.asked] == [Ask, WriteBrief]
    assert fed.link.call(Ask).cancelled and fed.link.call(WriteBrief).cancelled
    assert [b.note.text() for b in page.messages.views[1::2]] == ["stopped", "stopped"]


def test_a_failure_is_said_in_the_conversation(fed, qtbot):
    fed.window.show_page("assistant")
    fed.window.assistant.view.composer.happened.click()
    fed.fail(fed.asked[0], "the model folder /m has no config.json")
    qtbot.waitUntil(
        lambda: "no config.json" in fed.window.assistant.view.messages.views[1].note.text()
    )
    assert fed.window.assistant.view.messages.views[1].note.property("meaning") == "failed"


def test_an_answer_is_data_and_loads_nothing(fed, tmp_path):
    secret = tmp_path / "secret.png"
    fed.window.grab().save(str(secret))
    evil = (
        f"![x](file://{secret})\n\n<img src='file://{secret}'>\n\n[go](file:///etc/passwd)"
        " <script>1</script>"
    )
    fed.window.show_page("assistant")
    fed.window.assistant.show_answer("q", FinishedAnswer(evil, "model tiny"))
    fed.settle()
    text = fed.window.assistant.view.messages.views[1].text
    loaded = text.document().resource(QTextDocument.ResourceType.ImageResource, f"file://{secret}")
    assert loaded.width() == 1
    assert not text.openLinks()
    assert not text.openExternalLinks()
    assert "<script>" in text.toPlainText()
    assert fed.window.assistant.view.messages.views[1].height() < 300


LONG = "# Much\n\n" + "word " * 3000


def test_a_long_answer_is_read_from_its_beginning(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.view
    for _ in range(2):
        page.show_answer("What happened?", FinishedAnswer(LONG, "template"))
        fed.settle()
    assert on_top(page) == 3


def test_scrolling_follows_new_text_only_at_the_end(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.view
    page.show_answer("What happened?", FinishedAnswer(LONG, "template"))
    page.composer.happened.click()
    bar = page.messages.verticalScrollBar()

    def write() -> None:
        end = bar.maximum()
        fed.event(Chunk("word " * 3000))
        qtbot.waitUntil(lambda: bar.maximum() > end)
        fed.settle()

    fed.settle()
    write()
    qtbot.waitUntil(lambda: on_top(page) == 3)  # the question stays, and the answer grows below it
    bar.triggerAction(bar.SliderAction.SliderToMaximum)
    write()
    assert bar.value() == bar.maximum()
    bar.triggerAction(bar.SliderAction.SliderPageStepSub)
    place = bar.value()
    write()
    assert bar.value() == place


def on_top(page: ConversationView) -> int | None:
    """The number of the message at the top of the view."""
    return next((b.number for b in page.messages.views if b.y() == 0), None)


def test_a_wide_window_shows_what_the_newest_answer_rests_on_beside_it(fed):
    fed.window.resize(2560, 1440)
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant
    fed.settle()
    assert not page.pane.isVisible(), "nothing was answered"
    hot = Curve("GPU 0 temperature", "°C", (1.0, 2.0), (60.0, 61.0))
    page.show_answer(
        "How hot was it?",
        FinishedAnswer(
            "61 °C",
            "template",
            (("Temperature: 61 °C", "61 °C", "history"),),
            curves=(hot,),
            seconds=0.1,
        ),
    )
    page.refresh()
    fed.settle()
    assert page.pane.isVisible() and page.pane.question.text() == "How hot was it?"
    assert page.pane.charts.curves == (hot,)
    assert "history\nTemperature: 61 °C" in page.pane.sources.toPlainText()
    theme.apply(fed.app, "dark")
    fed.settle()
    assert "history\nTemperature: 61 °C" in page.pane.sources.toPlainText()
    cold = Curve("GPU 1 temperature", "°C", (1.0, 2.0), (30.0, 31.0))
    page.pane.charts.show_curves((cold,))
    assert page.pane.charts.curves == (cold,)
    assert "GPU 1 temperature" in page.pane.charts.accessibleDescription()
    page.show_answer("Thanks", FinishedAnswer("You are welcome.", "template", (), seconds=0.1))
    page.refresh()
    assert page.pane.question.text() == "How hot was it?", "the newest that rests on something"
    fed.window.resize(1280, 800)
    fed.settle()
    assert not page.pane.isVisible()


def test_a_short_conversation_ends_just_above_the_composer(fed):
    fed.window.resize(1280, 800)
    fed.window.show_page("assistant")
    page = fed.window.assistant
    page.show_answer("Why?", FinishedAnswer("So.", "template", (), seconds=0.1))
    fed.settle()
    last = page.view.messages.views[-1]
    gap = page.view.messages.viewport().height() - last.geometry().bottom()
    assert 0 <= gap <= 2 * theme.S
    for _ in range(30):
        page.show_answer("Why?", FinishedAnswer("So.\n\n" * 9, "template", (), seconds=0.1))
    fed.settle()
    assert page.view.messages.verticalScrollBar().maximum() > 0


def test_the_overflow_menu_holds_what_is_used_seldom(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    composer = fed.window.assistant.view.composer
    titles = [action.text() for action in composer.more.menu().actions()]
    assert titles == [
        "Write a brief of the last ten minutes",
        "Insert a preset",
        "",
        "Export the conversation…",
    ]
    assert not composer.export.isEnabled(), "there is nothing to export"
    composer.more.menu().actions()[0].trigger()
    assert [type(r) for r in fed.asked] == [WriteBrief]
    assert not composer.brief.isEnabled(), "there is one answer at a time"


def test_every_preset_sends_its_query_in_any_language(fed):
    fed.feed(snapshots.cpu_snapshot())
    texts.use("de")
    window = MainWindow(fed.link)
    window.show_page("assistant")
    view = window.assistant.view
    last_hour, free, *_ = presses = view.empty.buttons
    assert len(presses) == 4 and free.text() == "Welche GPU ist frei?"
    last_hour.click()
    (hour,) = fed.asked
    assert isinstance(hour.meant, Query) and hour.meant.time is not None
    assert hour.meant.time.until - hour.meant.time.since == 3600.0
    view.composer.stop.click()
    view.again_last()
    later = fed.asked[-1].meant
    assert later.time.until > hour.meant.time.until, "the last hour is that before now"
    view.composer.stop.click()
    free.click()
    assert fed.asked[-1].meant == Query("devices", "use", states=("idle",))
    view.composer.stop.click()
    view.composer.happened.click()
    assert fed.asked[-1].meant == Query("overview")
    view.composer.stop.click()
    asked = {}
    for action in view.composer.menu.actions()[:4]:
        action.trigger()
        view.composer.send.click()
        asked[fed.asked[-1].text] = fed.asked[-1].meant
        view.composer.stop.click()
    assert len(asked) == 4 and None not in asked.values()
    view.composer.menu.actions()[1].trigger()
    view.composer.input.setText(f"{view.composer.input.text()} Und wie lange noch?")
    view.composer.send.click()
    assert fed.asked[-1].meant is None, "what the user changed is read as it is written"
    window.close()


def test_a_preset_keeps_its_query_in_the_editor_unless_its_prompt_is_changed(fed):
    fed.window.show_page("assistant")
    editor = fed.window.assistant.presets
    editor.show_presets(own_presets())
    editor.table.item(0, 0).setText("Lage")
    editor.table.item(1, 1).setText("Why does job 7 wait?")
    kept = editor.presets()
    assert (kept[0].name, kept[0].query) == ("Lage", own_presets()[0].query)
    assert kept[1].query is None
    assert kept[2:] == own_presets()[2:]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        (3e9, "{} writes briefs and reports, and reads unclear requests."),
        (0.2e9, "{} is too small to read requests or to write."),
    ],
)
def test_an_empty_conversation_says_what_the_model_does(fed, parameters, told):
    fed.feed(snapshots.cpu_snapshot(settings=Settings(model_folder="/m/rwkv7")))
    fed.window.show_page("assistant")
    shown = fed.window.assistant.view.empty.text
    assert shown.text().endswith("Templates write the answers. rwkv7 is in use."), "not known yet"
    fed.reply(ListModels, (Model("/m/rwkv7", "rwkv7", parameters=int(parameters)),))
    fed.window.refresh()
    assert shown.text().endswith(f"Templates write the answers. {told.format('rwkv7')}")


def test_an_empty_conversation_says_that_there_is_no_model_or_a_served_one(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    shown = fed.window.assistant.view.empty.text
    assert "No language model is in use. To choose one, press Ctrl+M." in shown.text()
    fed.window.models.serving.show_served(served.MINUTE[-1])
    fed.window.show_page("assistant")
    assert "which is served, reads unclear requests." in shown.text()
