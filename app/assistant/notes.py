"""The notes beside messages: why an answer waits or was stopped, and what it does not say."""

from __future__ import annotations

from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.language.text import Text, phrase

ASKING = phrase("asking the assistant")
STOPPED = phrase("stopped")
CLOSED = phrase("the window was closed")
CUT_OFF = phrase("cut off: the model's context is full")
UNCHECKED = phrase("free chat, not checked against facts")


def left_out_note(messages: int) -> Text:
    """Return that the first messages of a conversation did not fit."""
    return phrase("the first {n} messages did not fit and were left out", n=messages)


def note_text(message: Message) -> str:
    """Return why the message waits or failed, and that free chat is not checked."""
    note = tr_text(message.note) or (tr("writing…") if message.state == "writing" else "")
    chatted = message.wants == "chat" and message.author != "you" and message.text
    # the notes that older versions stored with finished answers say so themselves
    older = message.state == "done" and message.note and isinstance(message.note, str)
    if not chatted or older:
        return note
    return f"{note}  ({tr_text(UNCHECKED)})" if note else tr_text(UNCHECKED)
