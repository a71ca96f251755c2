"""Distort requests as if they were typed in a hurry."""

from __future__ import annotations

from random import Random

from assistant.training.values import words

_ELIDED = frozenset(
    words("the a an is are of do does to me i der die das ist le la les el los est de")
)
_SHORT = {
    "you": "u",
    "are": "r",
    "please": "pls",
    "what's": "whats",
    "what is": "whats",
    "because": "cuz",
    "number": "nr",
    "i'm": "im",
    "don't": "dont",
}
_PLAIN = str.maketrans("äöüéèêàâçñáíóúßô", "aoueeeaacnaiouso")
_NEAR = {
    "a": "sq",
    "e": "wr",
    "i": "uo",
    "o": "ip",
    "t": "ry",
    "n": "bm",
    "s": "ad",
    "r": "et",
    "u": "yi",
    "l": "k",
    "m": "n",
    "h": "gj",
    "c": "vx",
    "d": "sf",
}


def noised(random: Random, text: str) -> str:
    """Distort a text: typos, words left out or shortened, accents, case, punctuation. Values are
    kept.
    """
    style = random.random()
    parts = text.split(" ")
    if style < 0.15:
        parts = [word for word in parts if word not in _ELIDED or random.random() < 0.5] or parts
    if style > 0.85:
        parts = [_SHORT.get(word, word) for word in parts]
    if random.random() < 0.3:
        parts = [_typo(random, word) if random.random() < 0.2 else word for word in parts]
    text = " ".join(parts)
    if random.random() < 0.3:
        text = text.translate(_PLAIN)
    if random.random() < 0.15:
        text = text.replace("'", "").replace(",", "")
    text += random.choice(("", "", "", "?", "?", ".", "!", "??", "...", " ?"))
    case = random.random()
    return text.upper() if case < 0.03 else text[:1].upper() + text[1:] if case < 0.3 else text


def _typo(random: Random, word: str) -> str:
    """Drop, double or swap a letter, or replace it with its neighbour on the keyboard."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = random.randrange(1, len(word) - 1)
    near = random.choice(_NEAR.get(word[at], word[at]))
    changed = (
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
    )
    return random.choice((*changed, word[:at] + near + word[at + 1 :]))
