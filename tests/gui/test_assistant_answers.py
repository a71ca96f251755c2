"""The assistant page shows answers as they are written."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtTest import QTest

from app.assistant.conversation_view import ConversationView
from app.assistant.requests import Ask, FinishedAnswer, WriteBrief
from assistant.messages import Chunk, Waiting
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
    qtbot.waitUntil(lambda: page.messages.views[1].writer.text().startswith("written by template"))
    assert page.messages.views[1].text.toPlainText() == "It was 61 °C."
    page.messages.views[1].sources.click()
    assert "61 °C (reading)" in page.messages.views[1].facts.toPlainText()
    assert page.composer.send.isEnabled()


def test_the_two_buttons_and_stop(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.view
    page.composer.happened.click()
    page.composer.stop.click()
    page.composer.brief.click()
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
