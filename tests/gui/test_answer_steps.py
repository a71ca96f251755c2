"""What helps with an answer stands below it as buttons: orders, pages, and the manual."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect

from gpudeck.app.assistant.requests import Ask, FinishedAnswer
from gpudeck.app.language import texts
from gpudeck.app.widgets import theme
from gpudeck.assistant.answers.steps import manual_step, page_step, steps_of
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.assistant.query.steps import Step
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.units import GIB
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.readable import clipped


def told(*notes: Note) -> tuple[Step, ...]:
    return steps_of(Rows("jobs", (), (), phrase("queue"), 0.0, notes=notes))


def answered(fed: Fed, *steps: Step) -> None:
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    fed.window.assistant.show_answer(
        "why?", FinishedAnswer("Because of that.", "template", steps=steps)
    )
    fed.settle()


def test_a_remedy_is_ordered_by_a_button_in_the_language_of_the_window(fed: Fed) -> None:
    full = Note("failure", (7, "gpu memory", "CUDA out of memory"))
    answered(fed, *told(full, Note("retry", (7, "memory", 24 * GIB)), full))
    retry, show, unused = fed.window.assistant.view.messages.views[-1].steps.buttons
    assert (retry.text(), show.text()) == ("Retry job 7 with 24 GiB", "Show job 7")
    assert not unused.isVisible()
    retry.click()
    (asked,) = fed.asked
    assert isinstance(asked, Ask)
    assert asked.meant == Order("retry", jobs=(7,), options={"memory": "24576MiB"})
    assert fed.window.assistant.view.conversation.messages[-2].text == "Retry job 7 with 24 GiB"
    fed.window.assistant.view.composer.stop.click()
    texts.use("de")
    fed.window.assistant.view.messages.recolor()
    shown = fed.window.assistant.view.messages.views[1].steps.buttons[0]
    assert shown.text() == "Job 7 mit 24 GiB wiederholen"


def test_the_page_that_helps_is_opened(fed: Fed) -> None:
    answered(fed, page_step("cleanup"), *told(Note("failure", (7, "nan", "loss: nan"))))
    buttons = fed.window.assistant.view.messages.views[-1].steps.buttons
    assert [made.text() for made in buttons[:2]] == ["Open Clean up", "Show job 7"]
    buttons[0].click()
    assert fed.window.pages.currentWidget() is fed.window.cleanup
    buttons[1].click()
    assert fed.window.pages.currentWidget() is fed.window.jobs


def test_a_quotation_of_the_manual_leads_to_its_section(fed: Fed) -> None:
    answered(fed, manual_step("queue", "Cancel, hold and change jobs"), manual_step("commands"))
    section, page, _ = fed.window.assistant.view.messages.views[-1].steps.buttons
    assert section.text() == "Manual: Cancel, hold and change jobs"
    section.click()
    fed.settle()
    sheet = fed.window.commands.manual
    assert sheet.isVisible() and "queue" in sheet.choice.currentText().lower()
    line = sheet.text.cursorForPosition(QPoint(2, 4)).block().text()
    assert line == "Cancel, hold and change jobs"
    sheet.leave()
    page.click()
    assert sheet.text.verticalScrollBar().value() == 0


def test_steps_stand_within_a_narrow_window(fed: Fed) -> None:
    long = [manual_step("queue", f"A long heading of a section of the manual {n}") for n in "123"]
    answered(fed, *long)
    for scheme in ("light", "dark"):
        theme.apply(fed.app, scheme)
        for width in (1280, fed.window.minimumWidth()):
            fed.window.resize(width, 800)
            fed.settle()
            assert clipped(fed.window) == []
            message = fed.window.assistant.view.messages.views[-1]
            for made in message.steps.buttons:
                place = QRect(made.mapTo(message, QPoint()), made.size())
                assert message.rect().contains(place)
