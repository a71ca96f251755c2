"""Name the errors of a model's files.

Each message is one line that says what is wrong and what to do.
"""

from __future__ import annotations


class ModelError(ValueError):
    """Report weights, a vocabulary, a text or a saved state that the engine cannot use."""


class ModelNotFoundError(ModelError):
    """Report a model or a vocabulary that does not exist."""
