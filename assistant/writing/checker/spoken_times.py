"""Write lengths of time and shares that are told in words with numbers: `an hour and a half` is
`90 min`, `two thirds of the memory` is `about 66.7 % of the memory`.
"""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker.lexicon import NUMERALS, UNIT_WORDS

_UNITS = "seconds?|minutes?|hours?|days?"
_COUNT = rf"(?:\d+|{'|'.join(NUMERALS)}|another|an?)"
_PLAIN = re.compile(rf"\b({'|'.join(NUMERALS)})(?= (?:more )?(?:{_UNITS})\b)", re.IGNORECASE)
_SMALLER = {"min": ("s", 60), "h": ("min", 60), "d": ("h", 24)}
_ORDINAL = r"(?! (?!ago|left|more|longer|later|and|or|on|over|to|in|at|of|before|after)\w)"
"""Not followed by a noun: `a second job` is no length of time."""
_FORMS = re.compile(
    rf"\b(?:(?P<count>{_COUNT})[ -](?P<unit>{_UNITS})(?P<half> and a half)"
    rf"|(?P<halves>{_COUNT}) and a half (?:more )?(?P<halved>{_UNITS})"
    rf"|(?:(?:a |one )?(?P<one>half|quarter) |(?P<three>three) quarters )"
    rf"(?:of )?(?:an? )?(?P<divided>{_UNITS})"
    rf"|(?P<first>{_COUNT}) (?P<larger>{_UNITS})(?:,| and|, and) (?P<second>{_COUNT})"
    rf" (?P<smaller>{_UNITS})"
    rf"|(?P<adjective>{_COUNT})-(?P<of>{_UNITS})"
    r"(?P<mean> (?:mean|average|peak|maximum)(?: of \d[\d.]* [^\s,.]+)?)?"
    rf"|an? (?P<single>minute|hour|day|second{_ORDINAL}))(?!\w)",
    re.IGNORECASE,
)


_PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
_SHARES = re.compile(
    rf"\b(?P<said>(?:(?:just|a little|a bit|slightly) )?(?:about|around|roughly|almost|nearly"
    rf"|(?:more|less) than|over|under) )?"
    rf"(?:(?P<count>an?|one|two|three|four|five|seven|nine) )?(?P<part>{'|'.join(_PARTS)})s?"
    r"(?=,? (?:of (?:the|its|their|all|job|GPU|[\w.-]+ is)\b|done|complete|completed|finished|full"
    r"|through|used|free)\b)"
    r"|\b(?P<way>past the half[ -]?way mark|half[ -]?way(?: through| done)?)\b",
    re.IGNORECASE,
)


def with_numbers(sentence: str) -> str:
    """Return the sentence with the lengths of time that are told in words as numbers.

    Halves and quarters are written in the next smaller unit. `A ten-minute mean of 66 %` is a
    `mean of 66 % over 10 min`. Other numbers are left to the checker.
    """
    sentence = _SHARES.sub(_share, _FORMS.sub(_written, sentence))
    return _PLAIN.sub(lambda found: f"{_number(found[1]):g}", sentence)


def _share(found: re.Match[str]) -> str:
    if found["way"]:
        return "over 50 %" if found["way"].lower().startswith("past") else "about 50 % done"
    share = 100 * _number(found["count"] or "a") / _PARTS[found["part"].lower()]
    return f"{found['said'] or 'about '}{share:.1f}".removesuffix(".0") + " %"


def _written(found: re.Match[str]) -> str:
    if found["single"]:
        return _amount(1.0, found["single"])
    if found["half"]:
        return _amount(_number(found["count"]) + 0.5, found["unit"])
    if found["halves"]:
        return _amount(_number(found["halves"]) + 0.5, found["halved"])
    if found["divided"]:
        share = 0.75 if found["three"] else 0.5 if found["one"].lower() == "half" else 0.25
        return _amount(share, found["divided"])
    if found["adjective"]:
        length = _amount(_number(found["adjective"]), found["of"])
        return f"{found['mean'].strip()} over {length}" if found["mean"] else length
    larger, smaller = UNIT_WORDS[found["larger"].lower()], UNIT_WORDS[found["smaller"].lower()]
    return f"{_number(found['first']):g} {larger} {_number(found['second']):g} {smaller}"


def _amount(count: float, word: str) -> str:
    unit = UNIT_WORDS[word.lower()]
    if count % 1 and unit in _SMALLER:
        unit, parts = _SMALLER[unit]
        count *= parts
    return f"{count:g} {unit}"


def _number(word: str) -> float:
    lower = word.lower()
    return 1.0 if lower in ("a", "an", "another") else float(NUMERALS.get(lower, lower))
