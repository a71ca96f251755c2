"""What the assistant asks back: its choices by mouse, by their number and by keyboard, and what
is asked then."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.message_view import MessageView
from gpudeck.app.assistant.requests import Ask, FinishedAnswer, SessionRequest
from gpudeck.assistant.intents.choices import clarifying_question, distinct_choices
from gpudeck.assistant.query.request import Order, Query
from gpudeck.language.words import words
from tests.gui.conftest import Fed

WAITING, HOLD = (
    Query("jobs", "reason", jobs=(7,)),
    Order("hold", jobs=("<b>x</b> & y",)),
)
OFFERED = distinct_choices([WAITING, HOLD], words("en"))


def asked_back(fed: Fed) -> MessageView:
    """The message that asks."""
    fed.window.show_page("assistant")
    fed.window.assistant.show_answer(
        "job 7 ?!",
        FinishedAnswer(clarifying_question(OFFERED, words("en")), "template", choices=OFFERED),
    )
    fed.settle()
    return fed.window.assistant.view.messages.views[-1]


def sent(fed: Fed) -> list[object]:
    return [request for request in fed.asked if not isinstance(request, SessionRequest)]


def test_each_choice_button_repeats_the_question_with_that_meaning(fed: Fed) -> None:
    message_view = asked_back(fed)
    shown = [made for made in message_view.choices.buttons.values() if made.isVisible()]
    assert [made.text() for made in shown] == [
        "1  Reason: job 7",
        "2  keep jobs that wait from starting: job <b>x</b> && y",
        "None of these",
    ]
    assert not message_view.text.isVisible(), "the card says it all"
    assert message_view.height() >= message_view.choices.height() > 3 * shown[0].height()
    shown[1].click()
    fed.settle()
    view = fed.window.assistant.view
    assert sent(fed) == [Ask("job 7 ?!", HOLD)]
    assert (
        view.conversation.messages[-2].text == "keep jobs that wait from starting: job <b>x</b> & y"
    )
    fed.answer(FinishedAnswer("It is held.", "template"))
    view.again_last()
    assert sent(fed)[1:] == [Ask("job 7 ?!", HOLD)], "it is not asked back again"


def test_a_choice_is_made_by_its_number_and_anything_else_is_a_request(fed: Fed) -> None:
    asked_back(fed)
    view = fed.window.assistant.view
    view.ask("1")
    assert sent(fed) == [Ask("job 7 ?!", WAITING)]
    fed.answer(FinishedAnswer("It waits.", "template"))
    view.ask("1")
    assert sent(fed)[1:] == [Ask("1")], "nothing is asked any more"
    fed.answer(FinishedAnswer("Job 1.", "template"))
    asked_back(fed)
    view.ask("3")
    assert sent(fed)[2:] == [Ask("3")], "two were offered"


def test_by_keyboard_each_choice_has_a_name_and_is_reached(fed: Fed) -> None:
    card = asked_back(fed).choices
    assert (
        card.accessibleName()
        == "Did you mean: Reason: job 7; keep jobs that wait from starting: job <b>x</b> & y"
    )
    assert card.buttons["1"].accessibleName() == "Choose 1: Reason: job 7"
    card.buttons["1"].setFocus()
    QTest.keyClick(card.buttons["1"], Qt.Key.Key_Tab)
    assert card.buttons["2"].hasFocus()
    QTest.keyClick(card.buttons["2"], Qt.Key.Key_Tab)
    QTest.keyClick(card.buttons["none"], Qt.Key.Key_Space)
    entry = fed.window.assistant.view.composer
    assert sent(fed) == [] and entry.input.text() == "job 7 ?!" and entry.instead is not None, (
        "it can be put another way"
    )


def test_a_question_back_and_its_answer_are_kept(fed: Fed) -> None:
    message_view = asked_back(fed)
    message_view.choices.buttons["2"].click()
    kept = Conversation(fed.window.assistant.view.conversation.saved())
    assert kept.messages[1].choices == OFFERED
    assert kept.asked(kept.path[-1]) == ("job 7 ?!", HOLD)
