"""What the assistant proposes, as a card: what it says, its three answers by mouse and keyboard,
and that nothing else allows anything."""

from __future__ import annotations

import time

import msgspec
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtTest import QTest

from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.message_tree import SavedConversation
from gpudeck.app.assistant.requests import Decide, FinishedAnswer, ReadProposals, SessionRequest
from gpudeck.app.language import texts
from gpudeck.assistant.tools.buttons import Buttons, of_jobs
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.language.text import phrase
from tests.gui.conftest import Fed

EVIL = "train \x1b[31m<b>x</b> {gpu0.temp} \u202eevil"
PROPOSAL = Proposal(
    "p1",
    "operate cancel",
    "Cancel job 7 (train)",
    "Job 7 (train) waits since 14:02:11; it will be taken out of the queue and never run.",
    (("Command", "gpudeck cancel 7"),),
    time.time() + 86_400,
    buttons=of_jobs("cancel", (7,)),
)


def proposed(fed: Fed, proposal: Proposal = PROPOSAL) -> int:
    """The number of the message that proposes it."""
    fed.window.show_page("assistant")
    view = fed.window.assistant.view
    fed.window.assistant.show_answer(
        "stop job 7",
        FinishedAnswer(
            "as text",
            "template",
            tool="operate cancel job=7",
            reader="exact form",
            proposal=proposal,
        ),
    )
    fed.settle()
    return view.conversation.path[-1]


def asked(fed: Fed) -> list[object]:
    return [request for request in fed.asked if not isinstance(request, SessionRequest)]


def test_the_card_shows_the_effect_and_sends_one_decision(fed: Fed) -> None:
    number = proposed(fed)
    view = fed.window.assistant.view
    card = view.messages.views[-1].proposal
    assert card.title.text() == "Cancel job 7 (train)?"
    assert card.effect.text() == PROPOSAL.effect
    assert "gpudeck cancel 7" in card.details.text()
    assert card.standing.text() == "Nothing is done until you allow it."
    shown = view.messages.views[-1]
    assert "operate" not in shown.writer.text()
    shown.details_button.click()
    assert "operate cancel job=7" in shown.details.toPlainText()
    assert asked(fed) == [], "it is shown, and nothing more"
    card.accept.click()
    fed.settle()
    (request,) = asked(fed)
    assert request == Decide(PROPOSAL, "once")
    assert view.conversation.messages[-2].text == "Cancel job 7"
    fed.answer(FinishedAnswer("Job 7 was taken out of the queue.", "template"))
    fed.settle()
    shown = view.messages.views[-3].proposal
    assert shown.standing.text() == "Allowed once."
    assert not any(made.isVisible() for made in (shown.decline, shown.accept, shown.more))
    view.messages.acted.emit("once", number)
    fed.settle()
    assert asked(fed) == [request], "decided once and for all"
    view.again_last()
    assert asked(fed) == [request], "what was done is not done again"


def test_by_keyboard_each_answer_has_a_name_and_is_reached(fed: Fed) -> None:
    proposed(fed)
    card = fed.window.assistant.view.messages.views[-1].proposal
    assert [card.decline.text(), card.accept.text()] == ["Keep job 7", "Cancel job 7"]
    assert card.more.accessibleName() == "More: Cancel job 7 (train)"
    assert [choice.text() for choice in card.more.menu().actions()] == [
        "Allow for this session",
        "Block for good",
    ]
    assert card.accessibleName() == "Proposal: Cancel job 7 (train)"
    assert PROPOSAL.effect in card.accessibleDescription()
    card.accept.setFocus()
    QTest.keyClick(card.accept, Qt.Key.Key_Tab)
    assert card.more.hasFocus()
    card.choices["session"].trigger()
    assert [request.decision for request in asked(fed)] == ["session"]


def test_hostile_names_are_shown_as_they_are(fed: Fed) -> None:
    proposed(
        fed, msgspec.structs.replace(PROPOSAL, title=EVIL, effect=EVIL, details=((EVIL, EVIL),))
    )
    card = fed.window.assistant.view.messages.views[-1].proposal
    for part in (card.title, card.effect, card.details, card.standing):
        assert part.textFormat() == Qt.TextFormat.PlainText
    assert "<b>x</b>" in card.title.text()


def test_one_that_expired_cannot_be_allowed(fed: Fed) -> None:
    proposed(fed, msgspec.structs.replace(PROPOSAL, expires=time.time() - 1))
    card = fed.window.assistant.view.messages.views[-1].proposal
    assert "has expired. Nothing was done" in card.standing.text()
    assert not any(made.isVisible() for made in (card.decline, card.accept, card.more))


def test_an_action_that_differs_each_time_can_be_allowed_once_or_never(fed: Fed) -> None:
    proposed(fed, msgspec.structs.replace(PROPOSAL, once=True))
    shown = fed.window.assistant.view.messages.views[-1].proposal.choices
    assert [how for how, choice in shown.items() if choice.isVisible()] == ["never"]


def test_cancel_stands_first_and_does_nothing_for_good(fed: Fed) -> None:
    number = proposed(fed)
    view = fed.window.assistant.view
    card = view.messages.views[-1].proposal
    places = [made.mapTo(card, made.rect().topLeft()).x() for made in (card.decline, card.accept)]
    assert places == sorted(places)
    card.decline.click()
    fed.settle()
    assert asked(fed) == [], "nothing is done, and nothing is blocked"
    assert card.standing.text() == "Declined. Nothing was done."
    assert not card.accept.isVisible()
    view.messages.acted.emit("once", number)
    fed.settle()
    assert asked(fed) == [], "it was decided"


def test_a_refusal_is_shown_in_place_of_the_answer(fed: Fed) -> None:
    proposed(fed)
    view = fed.window.assistant.view
    view.messages.views[-1].proposal.accept.click()
    (request,) = asked(fed)
    fed.fail(request, "job 7 (train) has ended already: done")
    fed.settle()
    assert view.messages.views[-1].note.text() == "job 7 (train) has ended already: done"


def test_it_is_kept_with_the_conversation() -> None:
    conversation = Conversation()
    conversation.answered(
        FinishedAnswer("x", "template", proposal=PROPOSAL), conversation.ask("stop job 7")
    )
    conversation.decide(conversation.path[-1], "never")
    again = Conversation(
        msgspec.json.decode(msgspec.json.encode(conversation.saved()), type=SavedConversation)
    )
    kept = again.messages[1]
    assert (kept.proposal, kept.decision) == (PROPOSAL, "never")


def test_a_figure_in_an_answer_leads_to_its_source(fed: Fed) -> None:
    fed.window.show_page("assistant")
    facts = (
        ("GPU 0 power: 300 W", "300 W", "NVML readings, 18:03:20"),
        ("GPU 0 temperature: 71 °C", "71 °C", "NVML readings, 18:03:20"),
    )
    fed.window.assistant.show_answer(
        "how hot?", FinishedAnswer("😀 **GPU 0** temperature: now 71 °C.", "template", facts)
    )
    fed.settle()
    message_view = fed.window.assistant.view.messages.views[-1]
    cursor = message_view.text.textCursor()
    cursor.setPosition(message_view.text.document().toRawText().index("71") + 2)
    look = cursor.charFormat()
    assert look.isAnchor()
    assert "NVML readings, 18:03:20" in look.toolTip()
    message_view.text.anchorClicked.emit(QUrl(look.anchorHref()))
    fed.settle()
    assert message_view.details.isVisible()
    table = message_view.details.document().rootFrame().childFrames()[0]
    marked = [
        row
        for row in range(table.rows())
        if table.cellAt(row, 0).format().background().style() != Qt.BrushStyle.NoBrush
    ]
    assert marked == [3], "who wrote the answer stands above the source and its two facts"
    message_view.text.anchorClicked.emit(QUrl("http://evil"))
    message_view.text.anchorClicked.emit(QUrl("fact:99,x"))


def test_what_a_program_proposes_is_a_card_and_a_refusal_reaches_the_program(fed: Fed) -> None:
    of_program = msgspec.structs.replace(PROPOSAL, id="p9", by="editor")
    fed.window.show_page("assistant")
    page = fed.window.assistant
    page.look_for_proposals()
    fed.reply(ReadProposals, (of_program,))
    fed.settle()
    shown = page.view.messages.views[-1]
    assert "editor" in shown.text.toPlainText()
    assert shown.proposal.title.text() == "Cancel job 7 (train)?"
    page.look_for_proposals()
    fed.reply(ReadProposals, (of_program,))
    fed.settle()
    assert len(page.view.conversation.path) == 2, "it is shown once"
    shown.proposal.decline.click()
    fed.settle()
    assert Decide(of_program, "no") in fed.asked


def test_the_buttons_are_in_the_window_s_language_and_stand_below_each_other_if_narrow(
    fed: Fed,
) -> None:
    long = msgspec.structs.replace(
        PROPOSAL,
        buttons=Buttons(
            phrase("Set {setting} to {value}", setting="webhook", value="https://deck.lab/hook"),
            phrase("Leave {setting} as it is", setting="notify_minutes"),
        ),
    )
    proposed(fed, long)
    card = fed.window.assistant.view.messages.views[-1].proposal
    beside = (card.decline, card.accept)
    assert card.decline.y() == card.accept.mapTo(card.decline.parentWidget(), QPoint()).y()
    fed.window.resize(fed.window.minimumWidth(), 800)
    fed.settle()
    tops = [made.mapTo(card, QPoint()).y() for made in beside]
    assert tops[0] + card.decline.height() <= tops[1]
    assert card.accept.mapTo(card, card.accept.rect().bottomRight()).y() < card.height()
    texts.use("de")
    card.show_proposal(PROPOSAL, "")
    assert [made.text() for made in beside] == ["Job 7 behalten", "Job 7 abbrechen"]
