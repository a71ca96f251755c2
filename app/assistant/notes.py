"""Show in the window's language what is noted of a message: why it waits, failed, or was cut."""

from __future__ import annotations

from gpudeck.app.assistant.message_tree import UNCHECKED
from gpudeck.app.language.patterns import Patterns
from gpudeck.app.language.texts import tr_noop

ASKING = tr_noop("asking the assistant")
STOPPED = tr_noop("stopped")
CLOSED = tr_noop("the window was closed")
LEFT_OUT = tr_noop("the first {n} messages did not fit and were left out")
CUT_OFF = tr_noop("cut off: the model's context is full")
STARTING = tr_noop("starting {name}")
_PATTERNS = Patterns(
    (
        ASKING,
        STOPPED,
        CLOSED,
        LEFT_OUT,
        CUT_OFF,
        UNCHECKED,
        tr_noop("waiting for another request"),
        tr_noop("waiting for idle devices ({why})"),
        tr_noop("waiting for the GPU ({why})"),
        tr_noop("interrupted: the GPU is needed ({why})"),
        tr_noop("finding out what you ask for"),
        tr_noop("searching {path}"),
        tr_noop("gathering the facts"),
        tr_noop("loading the model"),
        tr_noop("loading the model {name}"),
        tr_noop("the model reads the conversation"),
        tr_noop("the model {name} is reading the prompt"),
        tr_noop("the model {name} is writing"),
        STARTING,
        tr_noop("{what}; {rest}"),
    ),
    {"n": r"\d+"},
)


def noted(text: str) -> str:
    """Return a note in the window's language, as far as its words are known."""
    return _PATTERNS.translated(text)
