"""The list of messages under a random walk: they stand one below the other, each as high as it
needs, and fill the view."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.assistant.conversation import Conversation
from app.assistant.conversation_view import Talk
from app.assistant.requests import FinishedAnswer
from app.widgets import theme
from assistant.messages import Chunk
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


def deeds(fed: Fed, talk: Talk, random: Random) -> list[Callable[[], object]]:
    """What a user and the assistant do."""
    kept = [conversation(60, random), conversation(3, random), Conversation()]
    bubbles = lambda: talk.messages.bubbles  # noqa: E731

    def stream() -> None:
        if talk.asked.busy:
            fed.event(Chunk("word " * random.randint(1, 80) + "\n\n"))

    def press(name: str) -> None:
        if bubbles():
            getattr(random.choice(bubbles()), name).click()

    return [
        lambda: QTest.keyClick(talk.messages, random.choice(KEYS)),
        lambda: fed.window.resize(random.randint(1024, 1800), random.randint(680, 1200)),
        stream,
        stream,
        lambda: talk.ask("why " * random.randint(1, 40)),
        talk.entry.stop.click,
        lambda: press("remove"),
        talk.undo.undo.click,
        talk.again_last,
        lambda: press("later"),
        lambda: press("sources"),
        lambda: talk.open(random.choice(kept)),
        lambda: theme.apply(fed.app, random.choice(["light", "dark"])),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_messages_stand_where_they_belong_whatever_was_done(fed, seed):
    random = Random(seed)
    fed.window.show_page("assistant")
    talk = fed.window.assistant.talk
    todo = deeds(fed, talk, random)
    talk.open(conversation(40, random))
    for _ in range(STEPS):
        random.choice(todo)()
        talk.refresh()
        fed.settle()
        check(talk)


def check(talk: Talk) -> None:
    """What must hold whenever nothing is to be drawn any more."""
    view, path = talk.messages, talk.conversation.path
    assert view.isVisible() == bool(path)
    if not path:
        return
    high = view.viewport().height()
    seen = [b for b in view.bubbles if b.y() < high and b.y() + b.height() > 0]
    places = [path.index(b.number) for b in seen]
    assert places == list(range(places[0], places[0] + len(places)))
    assert all(below.y() == above.y() + above.height() + theme.S for above, below in pairwise(seen))
    assert [b.height() for b in seen] == [b.fit(view.viewport().width()) for b in seen]
    if view.verticalScrollBar().maximum():
        assert seen[0].y() <= theme.S
        assert seen[-1].y() + seen[-1].height() >= high - theme.S
    assert len(view.bubbles) < 40
