"""The assistant page shows answers as they are written."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtTest import QTest

from gpudeck.app.assistant.conversation_view import ConversationView
from gpudeck.app.assistant.message_tree import Curve
from gpudeck.app.assistant.requests import Ask, FinishedAnswer, WriteBrief
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Chunk, Waiting
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots


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
        FinishedAnswer("It was **61 °C**.", "template", (("Temperature", "61 °C", "reading"),))
    )
    writer = page.messages.views[1].writer
    qtbot.waitUntil(page.composer.send.isEnabled)
    assert "no model is in use" in page.composer.where.text()
    assert "model" not in writer.text(), "the line below says it once for all answers"
    assert page.messages.views[1].text.toPlainText() == "It was 61 °C."
    page.messages.views[1].sources.click()
    assert "61 °C (reading)" in page.messages.views[1].facts.toPlainText()
    fed.feed(snapshots.cpu_snapshot(snapshots.NOW + 1, settings=Settings(model_folder="/m/tiny")))
    qtbot.waitUntil(lambda: writer.text().startswith("written without a model"))


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
            "61 °C", "template", (("Temperature", "61 °C", "history"),), curves=(hot,), seconds=0.1
        ),
    )
    page.refresh()
    fed.settle()
    assert page.pane.isVisible() and page.pane.question.text() == "How hot was it?"
    assert page.pane.charts.curves == (hot,)
    assert "61 °C (history)" in page.pane.sources.toPlainText()
    theme.apply(fed.app, "dark")
    fed.settle()
    assert "61 °C (history)" in page.pane.sources.toPlainText()
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
