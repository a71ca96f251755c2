"""Name the errors of a model's files.

Each message is one line that says what is wrong and what to do.
"""

from __future__ import annotations

from gpudeck.language.text import Message, message_of


class ModelError(ValueError):
    """Report weights, a vocabulary, a text or a saved state that the engine cannot use."""

    @property
    def message(self) -> Message:
        """Return the line as a value, which can be rendered in the user's language."""
        return message_of(self)


class ModelNotFoundError(ModelError):
    """Report a model or a vocabulary that does not exist."""
