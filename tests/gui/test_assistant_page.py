"""The assistant panel: long conversations, branches, deletion with undo, and the conversations
that are kept."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from app.assistant.conversation import Conversation
from app.assistant.conversation_view import Talk
from app.assistant.message_tree import Curve, Saved
from app.assistant.requests import (
    Ask,
    DeleteSession,
    FindSessions,
    FinishedAnswer,
    OpenSession,
    ReadPresets,
    RenameSession,
    RestoreSession,
    SavePresets,
    SaveSession,
    UseCpu,
    WriteBrief,
    WriteText,
)
from app.assistant.session_files import Preset, Summary
from app.link.link import Link
from app.report.file import SaveReport
from app.widgets import theme
from assistant.messages import Chunk, Waiting
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.readable import clipped, nameless

CODE = "To see it:\n\n```sh\ngpudeck jobs 8\n```\n"
CURVE = Curve("GPU 0 temperature", "°C", (1.0, 2.0, 3.0, 4.0), (33.0, 66.0, None, 60.0))


def opened(fed: Fed) -> Talk:
    fed.feed(snapshots.gpu_snapshot(1))
    fed.window.show_page("assistant")
    fed.settle()
    return fed.window.assistant.talk


def shown(talk: Talk) -> list[str]:
    return [m.text for m in talk.conversation.messages]


def test_hundreds_of_messages_have_few_widgets_and_each_is_reached(fed):
    talk = opened(fed)
    long = Conversation()
    for i in range(100):
        long.answered(
            FinishedAnswer(f"answer {i}\n\n" * (1 + i % 5), "template"), long.ask(f"question {i}")
        )
    talk.open(long)
    fed.settle()
    bar = talk.messages.verticalScrollBar()
    assert bar.value() == bar.maximum()
    assert "answer 99" in talk.messages.bubbles[-1].text.toPlainText()
    QTest.keyClick(talk.messages, Qt.Key.Key_Home)
    assert talk.messages.bubbles[0].text.toPlainText() == "question 0"
    seen, presses = set(), 0
    while bar.value() < bar.maximum() and presses < 2000:
        seen |= {b.number for b in talk.messages.bubbles}
        QTest.keyClick(talk.messages, Qt.Key.Key_PageDown)
        presses += 1
    seen |= {b.number for b in talk.messages.bubbles}
    assert seen == set(long.path)
    assert len(talk.messages.findChildren(type(talk.messages.bubbles[0]))) < 30
    ends = [(b.y(), b.y() + b.height()) for b in talk.messages.bubbles]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends)), (
        "no message lies over another"
    )


def test_the_tab_key_goes_through_the_messages_in_their_order(fed):
    talk = opened(fed)
    fed.window.activateWindow()
    for i in range(12):
        talk.show_answer(f"question {i}", FinishedAnswer("answer", "template"))
    QTest.keyClick(talk.messages, Qt.Key.Key_Home)
    talk.messages.setFocus()
    reached = []
    for _ in range(30):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        fed.settle()
        bubble = next(
            (b for b in talk.messages.bubbles if b.isAncestorOf(QApplication.focusWidget())), None
        )
        if bubble is not None and (not reached or reached[-1] != bubble.number):
            reached.append(bubble.number)
            assert talk.messages.viewport().rect().intersects(bubble.geometry())
    assert reached == list(range(1, len(reached) + 1))
    assert len(reached) > 5


def test_edit_branch_and_go_through_the_versions(fed, qtbot):
    talk = opened(fed)
    talk.show_answer("one", FinishedAnswer("1", "template"))
    question = talk.messages.bubbles[0]
    question.edit.click()
    assert talk.entry.input.text() == "one"
    assert talk.entry.editing.isVisible()
    QTest.keyClick(fed.window, Qt.Key.Key_Escape)
    qtbot.waitUntil(
        lambda: (talk.entry.input.text(), talk.entry.editing.isVisible()) == ("", False)
    )
    QTest.keyClick(talk.entry.input, Qt.Key.Key_Up)
    QTest.keyClicks(talk.entry.input, " more")
    QTest.keyClick(talk.entry.input, Qt.Key.Key_Return)
    (ask,) = fed.asked
    assert isinstance(ask, Ask)
    assert ask.text == "one more"
    fed.answer(FinishedAnswer("1.1", "template"))
    talk.refresh()
    assert shown(talk) == ["one more", "1.1"]
    assert talk.messages.bubbles[0].branch.text() == "2/2"
    talk.messages.bubbles[0].earlier.click()
    assert shown(talk) == ["one", "1"]


def test_another_answer_stands_beside_the_first_and_a_brief_is_asked_for_again_as_one(fed):
    talk = opened(fed)
    talk.entry.brief.click()
    fed.answer(FinishedAnswer("brief", "template"))
    QTest.keyClick(fed.window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert [type(r) for r in fed.asked] == [WriteBrief, WriteBrief]
    fed.answer(FinishedAnswer("brief again", "template"))
    talk.refresh()
    assert (shown(talk)[-1], talk.messages.bubbles[1].branch.text()) == ("brief again", "2/2")


def test_what_waits_for_the_gpu_can_be_answered_on_the_cpu_now(fed, qtbot):
    talk = opened(fed)
    talk.entry.brief.click()
    fed.event(Waiting("waiting for the GPU (GPU 0: job 8 needs it)", cpu=True))
    qtbot.waitUntil(talk.messages.bubbles[1].use_cpu.isVisible)
    assert "job 8 needs it" in talk.messages.bubbles[1].note.text()
    talk.messages.bubbles[1].use_cpu.click()
    assert fed.asked[-1] == UseCpu()
    fed.event(Waiting("the model tiny is writing"))
    qtbot.waitUntil(lambda: not talk.messages.bubbles[1].use_cpu.isVisible())
    fed.answer(FinishedAnswer("brief", "model tiny", tokens=84, seconds=2.1, device="cpu"))
    assert "84 tokens in 2.1 s on cpu" in talk.messages.bubbles[1].writer.text()


def test_copy_delete_and_undo(fed):
    talk = opened(fed)
    talk.show_answer("one", FinishedAnswer(CODE, "template"))
    talk.show_answer("two", FinishedAnswer("2", "template"))
    fed.settle()
    talk.messages.reveal(1)
    answer = talk.messages.bubbles[1]
    answer.copy.click()
    assert QGuiApplication.clipboard().text() == CODE
    answer.code.click()
    assert QGuiApplication.clipboard().text() == "gpudeck jobs 8"
    answer.remove.click()
    assert shown(talk) == ["one"]
    assert "3 messages" in talk.undo.said.text()
    talk.undo.undo.click()
    assert shown(talk) == ["one", CODE, "two", "2"]
    assert not talk.undo.isVisible()


def test_the_report_of_a_brief_is_saved_where_the_user_says(fed, monkeypatch):
    monkeypatch.setattr(
        QFileDialog, "open", lambda self: None
    )  # offscreen, Qt warns of any second window
    talk = opened(fed)
    talk.write_brief()
    fed.answer(FinishedAnswer("all is well", "template", report=b"packed"))
    fed.settle()
    asked, brief = talk.messages.bubbles
    assert not asked.save.isVisible()
    brief.save.click()
    (dialog,) = talk.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith(".html")
    dialog.fileSelected.emit("/data/x.pdf")
    assert fed.asked[-1] == SaveReport(b"packed", "/data/x.pdf")
    kept = msgspec.json.decode(msgspec.json.encode(talk.conversation.saved()), type=Saved)
    talk.open(Conversation(kept))
    assert talk.conversation.messages[-1].report == b"packed", "also after a restart"


def test_conversations_are_opened_renamed_deleted_and_brought_back(fed, qtbot):
    talk = opened(fed)
    page = fed.window.assistant
    assert FindSessions() in fed.files
    first = talk.conversation
    talk.entry.happened.click()
    assert fed.files[-1] == SaveSession(first.saved()), "it is kept before there is an answer"
    other = Conversation()
    other.answered(FinishedAnswer("old answer", "template"), other.ask("old question"))
    found = (Summary(first.key, first.title, 2.0), Summary(other.key, other.title, 1.0))
    fed.reply(FindSessions(), (found, ""))
    page.sessions.list.setCurrentRow(1)
    QTest.keyClick(page.sessions.list, Qt.Key.Key_Return)
    assert fed.files[-1] == OpenSession(other.key)
    fed.reply(OpenSession, other.saved())
    assert shown(talk)[-1] == "old answer"
    fed.event(Chunk("the answer"))  # to the one that is not open
    assert "is being answered" in talk.entry.where.text()
    page.sessions.opened.emit(first.key)
    assert shown(talk)[-1] == "the answer"
    talk.entry.stop.click()
    page.sessions.list.item(1).setText("  Another \n name ")
    assert fed.files[-1] == RenameSession(other.key, "Another name")
    page.sessions.list.setCurrentRow(1)
    QTest.keyClick(page.sessions.list, Qt.Key.Key_Delete)
    assert fed.files[-1] == DeleteSession(other.key)
    assert page.sessions.list.count() == 1
    talk.undo.undo.click()
    assert RestoreSession(other.key) in fed.files
    assert page.sessions.list.count() == 2
    page.sessions.search.setText("hall")
    qtbot.waitUntil(lambda: fed.files[-1] == FindSessions("hall"))
    fed.reply(FindSessions(), ((), ""))  # to what was searched for before
    assert page.sessions.list.count() == 2
    for i in range(20):
        other.answered(
            FinishedAnswer("It was in the Hall." if i == 3 else "It was not.", "template"),
            other.ask(f"<img src=x> {i}"),
        )
    fed.reply(OpenSession, other.saved())
    assert "It was in the Hall." in [b.text.toPlainText() for b in talk.messages.bubbles], (
        "what was searched is brought into view"
    )
    found = (Summary(other.key, "<img src=x>", 1.0, "in the <b>Hall</b>"),)
    fed.reply(FindSessions("hall"), (found, ""))
    assert (
        page.sessions.list.item(0).toolTip()
        == "&lt;img src=x&gt;<br>in the &lt;b&gt;Hall&lt;/b&gt;"
    ), "what was said is no markup"


def test_the_assistant_is_woken_once_when_its_page_is_first_seen(fed):
    assert fed.woken == 0
    for page in ("assistant", "jobs", "assistant"):
        fed.window.show_page(page)
    assert fed.woken == 1


def test_presets_that_could_not_be_read_are_read_again_before_any_are_edited(fed):
    opened(fed)
    page = fed.window.assistant
    fed.fail(ReadPresets(), "presets.json cannot be read now: Too many open files")
    fed.files.clear()
    page.talk.entry.edit_presets.trigger()
    assert fed.files == [ReadPresets()] and not page.presets.isVisible()
    fed.reply(ReadPresets, (Preset("mine", "what ran?"),))
    page.talk.entry.edit_presets.trigger()
    assert page.presets.isVisible() and page.presets.presets() == (Preset("mine", "what ran?"),)


def test_presets_are_taken_and_edited_and_a_conversation_is_exported(fed, tmp_path):
    talk = opened(fed)
    page = fed.window.assistant
    talk.entry.menu.actions()[1].trigger()
    assert talk.entry.input.text() == "Why is my job waiting?"
    talk.entry.edit_presets.trigger()
    page.presets.add.click()
    line = page.presets.table.rowCount() - 1
    page.presets.table.item(line, 1).setText("How much energy did I use today, in all?")
    page.presets.done.click()
    kept = next(r for r in fed.files if isinstance(r, SavePresets))
    assert kept.presets[-1] == Preset(
        "How much energy did", "How much energy did I use today, in all?"
    )
    assert talk.isVisible()
    talk.show_answer("one", FinishedAnswer("1", "template"))
    page.save(str(tmp_path / "x.md"))
    assert isinstance(fed.files[-1], WriteText)
    assert "> one" in fed.files[-1].text


@pytest.mark.parametrize(
    ("scheme", "size"),
    [pytest.param("light", (1280, 800), marks=pytest.mark.slow), ("dark", (1024, 680))],
)
def test_nothing_is_clipped_or_nameless_whatever_is_open(fed, scheme, size):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    talk = opened(fed)
    facts = tuple((f"GPU 0 reading {i}", "66 °C", "NVML readings") for i in range(80))
    talk.show_answer(
        "how hot?", FinishedAnswer(CODE * 2, "model rwkv7-g1-1.5B", facts, (CURVE,) * 4, 84, 2.1)
    )
    talk.again(talk.conversation.path[1])
    talk.conversation.answered(
        FinishedAnswer(CODE, "model rwkv7-g1-1.5B", facts, (CURVE,) * 3, 84, 2.1),
        talk.conversation.number,
    )
    talk.entry.edit(1, "one\ntwo")
    talk.entry.say("the message is in the clipboard")
    talk.undo.offer("A message was deleted.", lambda: None)
    talk.messages.bubbles[1].sources.click()
    talk.refresh()
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []
    assert talk.messages.bubbles[1].facts.isVisible()
    fed.window.assistant.stack.setCurrentWidget(fed.window.assistant.presets)
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []


def test_what_was_said_is_there_after_a_restart(qapp, qtbot, home):
    talk = Conversation()
    talk.answered(FinishedAnswer("66 °C", "template"), talk.ask("how hot?"))
    link = Link()
    link.send(link, SaveSession(talk.saved()))
    link.stop()
    again = Link()
    (found,), notice = exchange(qtbot, again, FindSessions("66"))
    assert (found.title, notice) == ("how hot?", "")
    assert exchange(qtbot, again, OpenSession(talk.key)) == talk.saved()
    again.stop()
