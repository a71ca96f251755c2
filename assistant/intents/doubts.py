"""Words that make an order of a request doubtful, whatever a model of this size or the rules take it for: what forbids, what asks, and
conditions, exceptions, times and places, which no tool takes and a reading of its order leaves out. English, German, French, Spanish.
"""

from __future__ import annotations

import re

from assistant.intents.normalize import bare

_FORBIDS = re.compile(
    r"\b(?:dont|do not|not|never|no(?! \{)|avoid|refrain|nicht|nie|niemals|kein\w*|pas|jamais|aucun\w*|nunca|jamas|ningun\w*)\b"
)
"""May turn an order into its opposite."""
_CONDITIONAL = re.compile(
    r"\b(?:if|unless|until|till|when|once|after|except|but|only|tomorrow|tonight|midnight|noon|later|older|than|cpus?"
    r"|falls|wenn|sobald|bis|ausser|nur|erst|morgen|heute|si|sauf|quand|jusqu\w*|seulement|demain"
    r"|cuando|hasta|salvo|excepto|solo|manana)\b|\{t\d+\}|\bin an? \w+|\bin \{n\d+\} "
)
_OPENS = re.compile(
    r"(?:can|may|should|could|would|is|are|was|were|did|does|has|have|kann|darf|soll|sollte|muss|wurde|ist|puis|dois|faut|est|puedo|debo|hay"
    r"|fue|ha)\b"
)
"""Begins a question."""
_POLITE = re.compile(
    r"\b(?:(?:can|could|would|will) (?:you|u)|please|pls|would you mind|(?:kannst|konntest|wurdest) du|(?:konnen|konnten|wurden) sie|bitte"
    r"|(?:peux|pourrais)[- ]tu|(?:pouvez|pourriez)[- ]vous|tu peux|sil (?:te|vous)|(?<!se )(?:puedes?|podrias?)|por favor)\b"
)
"""Makes an order of a question."""


def forbids(text: str) -> bool:
    """Such a model reads `never cancel job 7` as one to cancel it."""
    return _FORBIDS.search(bare(text)) is not None


def conditional(text: str) -> bool:
    """`Cancel job 7 if it hangs`, `tomorrow`, `all but job 7`, `on the CPU`."""
    return _CONDITIONAL.search(bare(text)) is not None


def asks(text: str) -> bool:
    """Whether an order would be put as a question: may I, should we, was it; not `could you`."""
    read = bare(text)
    return ("?" in text or _OPENS.match(read) is not None) and _POLITE.search(read) is None
