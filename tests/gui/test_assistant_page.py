"""The assistant panel: long conversations, branches, deletion with undo, and the conversations
that are kept."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QEnterEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.conversation_view import ConversationView
from gpudeck.app.assistant.message_tree import Curve, SavedConversation
from gpudeck.app.assistant.presets import Preset
from gpudeck.app.assistant.requests import (
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
from gpudeck.app.assistant.session_files import Summary
from gpudeck.app.code.requests import ScanCode
from gpudeck.app.link.link import Link
from gpudeck.app.report.file import SaveReport
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Chunk, Waiting
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.readable import clipped, nameless

CODE = "To see it:\n\n```sh\ngpudeck jobs 8\n```\n"
CURVE = Curve("GPU 0 temperature", "°C", (1.0, 2.0, 3.0, 4.0), (33.0, 66.0, None, 60.0))


def opened(fed: Fed) -> ConversationView:
    fed.feed(snapshots.gpu_snapshot(1))
    fed.window.show_page("assistant")
    fed.settle()
    return fed.window.assistant.view


def shown(view: ConversationView) -> list[str]:
    return [m.text for m in view.conversation.messages]


def test_hundreds_of_messages_have_few_widgets_and_each_is_reached(fed):
    view = opened(fed)
    long = Conversation()
    for i in range(100):
        long.answered(
            FinishedAnswer(f"answer {i}\n\n" * (1 + i % 5), "template"), long.ask(f"question {i}")
        )
    view.open(long)
    fed.settle()
    bar = view.messages.verticalScrollBar()
    assert bar.value() == bar.maximum()
    assert "answer 99" in view.messages.views[-1].text.toPlainText()
    QTest.keyClick(view.messages, Qt.Key.Key_Home)
    assert view.messages.views[0].text.toPlainText() == "question 0"
    seen, presses = set(), 0
    while bar.value() < bar.maximum() and presses < 2000:
        seen |= {b.number for b in view.messages.views}
        QTest.keyClick(view.messages, Qt.Key.Key_PageDown)
        presses += 1
    seen |= {b.number for b in view.messages.views}
    assert seen == set(long.path)
    assert len(view.messages.findChildren(type(view.messages.views[0]))) < 30
    ends = [(b.y(), b.y() + b.height()) for b in view.messages.views]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends)), (
        "no message lies over another"
    )


def test_tab_visits_the_messages_in_order(fed):
    view = opened(fed)
    fed.window.activateWindow()
    for i in range(12):
        view.show_answer(f"question {i}", FinishedAnswer("answer", "template"))
    QTest.keyClick(view.messages, Qt.Key.Key_Home)
    view.messages.setFocus()
    reached = []
    for _ in range(30):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        fed.settle()
        message_view = next(
            (b for b in view.messages.views if b.isAncestorOf(QApplication.focusWidget())), None
        )
        if message_view is not None and (not reached or reached[-1] != message_view.number):
            reached.append(message_view.number)
            assert view.messages.viewport().rect().intersects(message_view.geometry())
    assert reached == list(range(1, len(reached) + 1))
    assert len(reached) > 5


def test_edit_branch_and_go_through_the_versions(fed, qtbot):
    view = opened(fed)
    view.show_answer("one", FinishedAnswer("1", "template"))
    question = view.messages.views[0]
    question.edit.click()
    assert view.composer.input.text() == "one"
    assert view.composer.editing.isVisible()
    QTest.keyClick(fed.window, Qt.Key.Key_Escape)
    qtbot.waitUntil(
        lambda: (view.composer.input.text(), view.composer.editing.isVisible()) == ("", False)
    )
    QTest.keyClick(view.composer.input, Qt.Key.Key_Up)
    QTest.keyClicks(view.composer.input, " more")
    QTest.keyClick(view.composer.input, Qt.Key.Key_Return)
    (ask,) = fed.asked
    assert isinstance(ask, Ask)
    assert ask.text == "one more"
    fed.answer(FinishedAnswer("1.1", "template"))
    view.refresh()
    assert shown(view) == ["one more", "1.1"]
    assert view.messages.views[0].branch.text() == "2/2"
    view.messages.views[0].earlier.click()
    assert shown(view) == ["one", "1"]


def test_a_second_answer_is_a_version_of_the_first_and_a_brief_is_repeated_as_a_brief(fed):
    view = opened(fed)
    view.composer.brief.trigger()
    fed.answer(FinishedAnswer("brief", "template"))
    QTest.keyClick(fed.window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert [type(r) for r in fed.asked] == [WriteBrief, WriteBrief]
    fed.answer(FinishedAnswer("brief again", "template"))
    view.refresh()
    assert (shown(view)[-1], view.messages.views[1].branch.text()) == ("brief again", "2/2")


def test_a_question_that_waits_for_the_gpu_can_be_answered_on_the_cpu(fed, qtbot):
    view = opened(fed)
    view.composer.brief.trigger()
    fed.event(Waiting("waiting for the GPU (GPU 0: job 8 needs it)", cpu=True))
    qtbot.waitUntil(view.messages.views[1].use_cpu.isVisible)
    assert "job 8 needs it" in view.messages.views[1].note.text()
    view.messages.views[1].use_cpu.click()
    assert fed.asked[-1] == UseCpu()
    fed.event(Waiting("the model tiny is writing"))
    qtbot.waitUntil(lambda: not view.messages.views[1].use_cpu.isVisible())
    fed.answer(FinishedAnswer("brief", "model tiny", tokens=84, seconds=2.1, device="cpu"))
    assert view.messages.views[1].writer.text().startswith("Written by the model tiny · ")
    view.messages.views[1].details_button.click()
    assert "84 tokens in 2.1 s on cpu" in view.messages.views[1].details.toPlainText()


def test_buttons_of_a_message_are_seen_under_the_pointer_with_the_focus_and_at_the_end(fed):
    view = opened(fed)
    view.show_answer("one", FinishedAnswer("1", "template"))
    view.show_answer("two", FinishedAnswer("2", "template"))
    fed.settle()
    seen = lambda: [m.shows_actions for m in view.messages.views]  # noqa: E731
    assert seen() == [False, False, False, True]
    first = view.messages.views[0]
    at = QPointF(first.rect().center())
    QApplication.sendEvent(first, QEnterEvent(at, at, at))
    assert seen() == [True, False, False, True]
    QApplication.sendEvent(first, QEvent(QEvent.Type.Leave))
    assert seen() == [False, False, False, True]
    view.messages.views[1].remove.setFocus(Qt.FocusReason.TabFocusReason)
    fed.settle()
    assert seen() == [False, True, False, True]
    view.messages.views[2].copy.setFocus(Qt.FocusReason.TabFocusReason)
    fed.settle()
    assert seen() == [False, False, True, True]


def test_copy_delete_and_undo(fed):
    view = opened(fed)
    view.show_answer("one", FinishedAnswer(CODE, "template"))
    view.show_answer("two", FinishedAnswer("2", "template"))
    fed.settle()
    view.messages.reveal(1)
    answer = view.messages.views[1]
    answer.copy.click()
    assert QGuiApplication.clipboard().text() == CODE
    answer.code.click()
    assert QGuiApplication.clipboard().text() == "gpudeck jobs 8"
    answer.remove.click()
    assert shown(view) == ["one"]
    assert "3 messages" in view.undo.text.text()
    view.undo.undo.click()
    assert shown(view) == ["one", CODE, "two", "2"]
    assert not view.undo.isVisible()


def test_the_report_of_a_brief_is_saved_in_the_chosen_file(fed, monkeypatch):
    monkeypatch.setattr(
        QFileDialog, "open", lambda self: None
    )  # offscreen, Qt warns of any second window
    view = opened(fed)
    view.write_brief()
    fed.answer(FinishedAnswer("all is well", "template", report=b"packed"))
    fed.settle()
    asked, brief = view.messages.views
    assert not asked.save.isVisible()
    brief.save.click()
    (dialog,) = view.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith(".html")
    dialog.fileSelected.emit("/data/x.pdf")
    assert fed.asked[-1] == SaveReport(b"packed", "/data/x.pdf")
    kept = msgspec.json.decode(
        msgspec.json.encode(view.conversation.saved()), type=SavedConversation
    )
    view.open(Conversation(kept))
    assert view.conversation.messages[-1].report == b"packed", "also after a restart"


def test_conversations_are_opened_renamed_deleted_and_brought_back(fed, qtbot):
    view = opened(fed)
    page = fed.window.assistant
    assert FindSessions() in fed.files
    first = view.conversation
    view.composer.happened.click()
    assert fed.files[-1] == SaveSession(first.saved()), "it is kept before there is an answer"
    other = Conversation()
    other.answered(FinishedAnswer("old answer", "template"), other.ask("old question"))
    found = (Summary(first.key, first.title, 2.0), Summary(other.key, other.title, 1.0))
    fed.reply(FindSessions(), (found, ""))
    page.sessions.list.setCurrentRow(1)
    QTest.keyClick(page.sessions.list, Qt.Key.Key_Return)
    assert fed.files[-1] == OpenSession(other.key)
    fed.reply(OpenSession, other.saved())
    assert shown(view)[-1] == "old answer"
    fed.event(Chunk("the answer"))  # to the one that is not open
    assert "is being answered" in view.composer.where.text()
    page.sessions.opened.emit(first.key)
    assert shown(view)[-1] == "the answer"
    view.composer.stop.click()
    page.sessions.list.item(1).setText("  Another \n name ")
    assert fed.files[-1] == RenameSession(other.key, "Another name")
    page.sessions.list.setCurrentRow(1)
    QTest.keyClick(page.sessions.list, Qt.Key.Key_Delete)
    assert fed.files[-1] == DeleteSession(other.key)
    assert page.sessions.list.count() == 1
    view.undo.undo.click()
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
    assert "It was in the Hall." in [b.text.toPlainText() for b in view.messages.views], (
        "what was searched is brought into view"
    )
    found = (Summary(other.key, "<img src=x>", 1.0, "in the <b>Hall</b>"),)
    fed.reply(FindSessions("hall"), (found, ""))
    assert (
        page.sessions.list.item(0).toolTip()
        == "&lt;img src=x&gt;<br>in the &lt;b&gt;Hall&lt;/b&gt;"
    ), "what was said is no markup"


def test_showing_the_page_first_wakes_the_assistant_once(fed):
    assert fed.woken == 0
    for page in ("assistant", "jobs", "assistant"):
        fed.window.show_page(page)
    assert fed.woken == 1


def test_presets_that_could_not_be_read_are_read_again_before_any_are_edited(fed):
    opened(fed)
    page = fed.window.assistant
    fed.fail(ReadPresets(), "presets.json cannot be read now: Too many open files")
    fed.files.clear()
    page.view.composer.edit_presets.trigger()
    assert fed.files == [ReadPresets()] and not page.presets.isVisible()
    fed.reply(ReadPresets, (Preset("mine", "what ran?"),))
    page.view.composer.edit_presets.trigger()
    assert page.presets.isVisible() and page.presets.presets() == (Preset("mine", "what ran?"),)


def test_presets_are_taken_and_edited_and_a_conversation_is_exported(fed, tmp_path):
    view = opened(fed)
    page = fed.window.assistant
    view.composer.menu.actions()[1].trigger()
    assert view.composer.input.text() == "Why is my job waiting?"
    view.composer.edit_presets.trigger()
    page.presets.add.click()
    line = page.presets.table.rowCount() - 1
    page.presets.table.item(line, 1).setText("How much energy did I use today, in all?")
    page.presets.done.click()
    kept = next(r for r in fed.files if isinstance(r, SavePresets))
    assert kept.presets[-1] == Preset(
        "How much energy did", "How much energy did I use today, in all?"
    )
    assert view.isVisible()
    view.show_answer("one", FinishedAnswer("1", "template"))
    page.save(str(tmp_path / "x.md"))
    assert isinstance(fed.files[-1], WriteText)
    assert "> one" in fed.files[-1].text


@pytest.mark.parametrize(
    ("scheme", "size"),
    [pytest.param("light", (1280, 800), marks=pytest.mark.slow), ("dark", (1024, 680))],
)
def test_no_control_is_clipped_or_unnamed_in_any_state(fed, scheme, size):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    view = opened(fed)
    facts = tuple((f"GPU 0 reading {i}", "66 °C", "NVML readings") for i in range(80))
    view.show_answer(
        "how hot?", FinishedAnswer(CODE * 2, "model rwkv7-g1-1.5B", facts, (CURVE,) * 4, 84, 2.1)
    )
    view.again(view.conversation.path[1])
    view.conversation.answered(
        FinishedAnswer(CODE, "model rwkv7-g1-1.5B", facts, (CURVE,) * 3, 84, 2.1),
        view.conversation.number,
    )
    view.composer.edit(1, "one\ntwo")
    view.composer.show_message("the message is in the clipboard")
    view.undo.offer("A message was deleted.", lambda: None)
    view.messages.views[1].details_button.click()
    view.refresh()
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []
    assert view.messages.views[1].details.isVisible()
    fed.window.assistant.stack.setCurrentWidget(fed.window.assistant.presets)
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []


def test_the_conversation_survives_a_restart(qapp, qtbot, home):
    view = Conversation()
    view.answered(FinishedAnswer("66 °C", "template"), view.ask("how hot?"))
    link = Link()
    link.send(link, SaveSession(view.saved()))
    link.stop()
    again = Link()
    (found,), notice = exchange(qtbot, again, FindSessions("66"))
    assert (found.title, notice) == ("how hot?", "")
    assert exchange(qtbot, again, OpenSession(view.key)) == view.saved()
    again.stop()


def test_an_answer_about_code_offers_the_page_that_shows_and_proves_the_change(fed, tmp_path):
    code = tmp_path / "a & b; rm -rf ~"
    view = opened(fed)
    view.show_answer("find attention", FinishedAnswer("1", "template", code_path=str(code)))
    fed.settle()
    (shown,) = [v for v in view.messages.views if v.message.code_path]
    assert shown.your_code.isVisible()
    shown.your_code.click()
    assert fed.window.shown == "code"
    assert fed.window.code.path.text() == str(code)
    assert fed.asked[-1] == ScanCode(str(code))


def test_a_conversation_can_begin_with_a_question_that_is_offered(fed):
    fed.window.show_page("assistant")
    fed.feed(snapshots.gpu_snapshot(1))
    view = fed.window.assistant.view
    assert all(button.isVisible() for button in view.empty.buttons)
    view.empty.buttons[1].click()
    (asked,) = [request for request in fed.asked if isinstance(request, Ask)]
    assert asked.text == "Which GPU is free?"
    fed.settle()
    assert not view.empty.isVisible()
