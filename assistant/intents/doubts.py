"""Recognize words that make a command doubtful, whoever recognized its tool.

These are words that forbid or ask, and conditions, exceptions, times and places, which no tool
takes as an argument. Languages: English, German, French and Spanish.
"""

from __future__ import annotations

import re

from assistant.intents.normalize import bare

_FORBIDS = re.compile(
    r"\b(?:dont|do not|not|never|no(?! \{)|avoid|refrain|nicht|nie|niemals|kein\w*|pas"
    r"|jamais|aucun\w*|nunca|jamas|ningun\w*)\b"
)
"""These may turn a command into its opposite."""
_CONDITIONAL = re.compile(
    r"\b(?:if|unless|until|till|when|once|after|except|but|only|tomorrow|tonight|midnight"
    r"|noon|later|older|than|cpus?"
    r"|falls|wenn|sobald|bis|ausser|nur|erst|morgen|heute|si|sauf|quand|jusqu\w*|seulement|demain"
    r"|cuando|hasta|salvo|excepto|solo|manana)\b|\{t\d+\}|\bin an? \w+|\bin \{n\d+\} "
)
_OPENS = re.compile(
    r"(?:can|may|should|could|would|is|are|was|were|did|does|has|have|kann|darf|soll|sollte"
    r"|muss|wurde|ist|puis|dois|faut|est|puedo|debo|hay"
    r"|fue|ha)\b"
)
"""The beginning of a question."""
_POLITE = re.compile(
    r"\b(?:(?:can|could|would|will) (?:you|u)|please|pls|would you mind|(?:kannst|konntest"
    r"|wurdest) du|(?:konnen|konnten|wurden) sie|bitte"
    r"|(?:peux|pourrais)[- ]tu|(?:pouvez|pourriez)[- ]vous|tu peux|sil (?:te|vous)|(?<!se"
    r" )(?:puedes?|podrias?)|por favor)\b"
)
"""These turn a question into a command."""


def forbids(text: str) -> bool:
    """Return whether a request forbids: a small model reads `never cancel job 7` as a command."""
    return _FORBIDS.search(bare(text)) is not None


def conditional(text: str) -> bool:
    """Return whether a request has a condition, such as `cancel job 7 if it hangs`."""
    return _CONDITIONAL.search(bare(text)) is not None


def asks(text: str) -> bool:
    """Return whether a request is a question, such as `may I`, but not `could you`."""
    read = bare(text)
    return ("?" in text or _OPENS.match(read) is not None) and _POLITE.search(read) is None
