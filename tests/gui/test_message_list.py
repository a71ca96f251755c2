"""The list of messages under a random walk: they stand one below the other, each as high as it
needs, and fill the view."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.conversation_view import ConversationView
from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Chunk
from tests.gui.conftest import Fed

STEPS = 250
CODE = "```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
KEYS = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End)


def conversation(pairs: int, random: Random) -> Conversation:
    made = Conversation()
    for _ in range(pairs):
        text = ("word " * random.randint(1, 120) + "\n\n") * random.randint(
            1, 6
        ) + CODE * random.randint(0, 1)
        facts = (("a", "b", "c"),) * random.randint(0, 30)
        made.answered(
            FinishedAnswer(text, "template", facts), made.ask("why " * random.randint(1, 60))
        )
    return made


def deeds(fed: Fed, view: ConversationView, random: Random) -> list[Callable[[], object]]:
    """What a user and the assistant do."""
    kept = [conversation(60, random), conversation(3, random), Conversation()]
    views = lambda: view.messages.views  # noqa: E731

    def stream() -> None:
        if view.asked.busy:
            fed.event(Chunk("word " * random.randint(1, 80) + "\n\n"))

    def press(name: str) -> None:
        if views():
            getattr(random.choice(views()), name).click()

    return [
        lambda: QTest.keyClick(view.messages, random.choice(KEYS)),
        lambda: fed.window.resize(random.randint(1024, 1800), random.randint(680, 1200)),
        stream,
        stream,
        lambda: view.ask("why " * random.randint(1, 40)),
        view.composer.stop.click,
        lambda: press("remove"),
        view.undo.undo.click,
        view.again_last,
        lambda: press("later"),
        lambda: press("details_button"),
        lambda: view.open(random.choice(kept)),
        lambda: theme.apply(fed.app, random.choice(["light", "dark"])),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_messages_keep_their_order_after_every_action(fed, seed):
    random = Random(seed)
    fed.window.show_page("assistant")
    view = fed.window.assistant.view
    todo = deeds(fed, view, random)
    view.open(conversation(40, random))
    for _ in range(STEPS):
        random.choice(todo)()
        view.refresh()
        fed.settle()
        check(view)


def check(view: ConversationView) -> None:
    """What must hold whenever nothing is to be drawn any more."""
    messages, path = view.messages, view.conversation.path
    assert messages.isVisible() == bool(path)
    if not path:
        return
    high = messages.viewport().height()
    seen = [b for b in messages.views if b.y() < high and b.y() + b.height() > 0]
    places = [path.index(b.number) for b in seen]
    assert places == list(range(places[0], places[0] + len(places)))
    assert all(below.y() == above.y() + above.height() + theme.S for above, below in pairwise(seen))
    widths = [b.width_in(messages.viewport().width()) for b in seen]
    assert [b.width() for b in seen] == widths
    assert [b.height() for b in seen] == [
        b.fit(width) for b, width in zip(seen, widths, strict=True)
    ]
    if messages.verticalScrollBar().maximum():
        assert seen[0].y() <= theme.S
        assert seen[-1].y() + seen[-1].height() >= high - theme.S
    assert len(messages.views) < 40


def test_a_question_is_on_the_right_and_as_wide_as_its_text(fed):
    fed.window.show_page("assistant")
    view = fed.window.assistant.view
    made = Conversation()
    for question in ("why?", "why " * 200):
        made.answered(FinishedAnswer("Because.", "template", ()), made.ask(question))
    view.open(made)
    fed.settle()
    short, answer, long, _ = view.messages.views
    whole = view.messages.viewport().width()
    assert answer.width() == whole
    assert short.geometry().right() == long.geometry().right() == whole - 1
    assert short.width() < long.width() <= 0.8 * whole
    assert short.copy.geometry().right() <= short.width()
