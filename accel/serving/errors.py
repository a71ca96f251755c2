"""Name the errors of serving. Each message is one line that says what is wrong and what to do."""

from __future__ import annotations

from gpudeck.language.text import Message, message_of


class ModelRefused(ValueError):
    """Report a model's folder that cannot be served, and why."""

    @property
    def message(self) -> Message:
        """Return the line as a value, which can be rendered in the user's language."""
        return message_of(self)


class RequestRefused(ValueError):
    """Report a request that cannot be served, and why."""


class TooLong(RequestRefused):
    """Report a prompt, or a prompt and its answer, that do not fit."""


NOT_FINITE = "the model's output is not finite: its weights are damaged, or overflow in this type"
