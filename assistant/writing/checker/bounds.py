"""Read the words before a value that bound it: `about`, `more than`, `a little over`."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon

WORD_NUMBER = "|".join(lexicon.NUMERALS)
_LITTLE = "(?:just|only just|(?:a )?(?:little|bit)|slightly|marginally|barely)"
_MORE, _LESS = "(?:more than|over|above|upwards of|in excess of)", "(?:less than|under|below)"
_LONG = r"(?= \S+ (?:s|min|h|d|seconds?|minutes?|hours?|days?)\b)"
BOUND = re.compile(
    rf"(?:(?P<above>{_LITTLE} {_MORE}|a good)"
    rf"|(?P<nearly>{_LITTLE} {_LESS}|nearly|almost|close to|near|just short of|not quite)"
    rf"|(?P<least>no less than|not less than|at least{_LONG})|(?P<most>no more than"
    rf"|not more than|no longer than|(?:at most|up to){_LONG})"
    r"|(?P<about>about|around|roughly|approximately|approx\.?|circa|some|another|or so)"
    rf"|(?P<more>{_MORE}|longer than{_LONG})|(?P<less>{_LESS}|shorter than{_LONG}))"
    rf"(?: (?:a|another|roughly|about))? (?=\d|(?:{WORD_NUMBER}) \w|\{{)",
    re.IGNORECASE,
)
BOUND_OF = {
    "above": ">~", "nearly": "<~", "least": ">=", "most": "<=", "about": "~", "more": ">",
    "less": "<",
}  # fmt: skip
"""What the words before a value say of it."""
