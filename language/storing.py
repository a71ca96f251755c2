"""Keep messages where only strings have room, as in a column of a table: values become JSON."""

from __future__ import annotations

import msgspec

from gpudeck.language.text import Message, Text

_BEGINNING = '{"type":"text",'


def stored_text(message: Message) -> str:
    """Return a string that `read_text` turns into the message again."""
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def read_text(stored: str) -> Message:
    """Return the message; a string of an older version, or a quotation, stays as it is."""
    if not stored.startswith(_BEGINNING):
        return stored
    try:
        return msgspec.json.decode(stored, type=Text)
    except msgspec.MsgspecError:
        return stored
