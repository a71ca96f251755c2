"""Say in a few words who read a request and who wrote an answer."""

from __future__ import annotations

from gpudeck.language.text import Message, Text, phrase

_READERS = {
    "your choice": phrase("nobody, as you chose what was meant"),
    "exact form": phrase("a rule, as the request is an exact form of an order"),
    "model request-reader": phrase("the encoder of GPU Deck"),
}
"""Who read a request, by `Answer.routed`."""


def reading(line: Message, routed: str) -> tuple[tuple[Text, Message], ...]:
    """Return captions and values: what a request was read as, and who read it.

    Args:
        line: The query or order as one line.
        routed: `Answer.routed`; empty in conversations of older versions.
    """
    query = (phrase("Query"), line)
    if not routed:
        return (query,)
    return (query, (phrase("Read by"), _READERS.get(routed) or _model(routed)))


def written_by(writer: str) -> Text:
    """Return who wrote an answer, from `Answer.writer`, as a sentence without its end."""
    return phrase("Written by {writer}", writer=writer_of(writer))


def writer_of(writer: str) -> Text:
    """Return who wrote an answer, from `Answer.writer`."""
    return phrase("a template") if writer == "template" else _model(writer)


def _model(kind_and_name: str) -> Text:
    return phrase("the model {name}", name=kind_and_name.removeprefix("model "))
