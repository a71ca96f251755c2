"""Hold what people say of devices.

Each row is a meaning and the phrases that have it, as regular expressions; see `paraphrases`.
"""

from __future__ import annotations

from gpudeck.assistant.writing.checker import phrase_parts as parts

ROWS: tuple[tuple[str, ...], ...] = (
    # devices
    (
        "is idle",
        rf"{parts.STANDS}{parts.SO_FAR} (?:doing )?nothing(?: to do)?(?! (?:but|in)\b)",
        rf"{parts.STANDS}{parts.SO_FAR} (?:no|without) work(?: to do| at all)?",
        rf"{parts.STANDS}{parts.SO_FAR} (?:not (?:being )?used(?! by\b)|back to idle|idle"
        rf"|idling|standing by|quiet)",
        r"idles|computes nothing|(?:is|are) not in use",
    ),
    (
        r"\g<d> is not held",
        r"no jobs? (?:is running|are running|runs?) on (?P<d>(?:GPU \d+|the (?:GPU|card|CPU)"
        r"|it)\b)",
    ),
    ("both GPUs are idle", r"neither (?:of the )?(?:gpu|card)s? (?:is|are) in use"),
    ("idle is", r"nobody (?:is using|uses|is on)"),
    ("not idle", r"(?:not|never) (?:been )?idle"),
    (
        "is busy",
        r"(?:is|are|has been|have been) (?:at work|working|computing"
        r"|under (?:[a-z]+ )?load)(?! (?:on|for|by)\b)",
    ),
    (r"\g<n> is busy", r"(?P<n>(?:gpu|card)s?(?: \d+)?) (?:is|are) (?:fully used|in use)(?! by\b)"),
    (
        "held by",
        r"(?:held|used|occupied|taken|in use|reserved|claimed|(?:kept )?busy) by(?= jobs?\b)",
    ),
    (
        "is",
        r"(?:runs|(?:is|are|has been|have been|was|were) running)(?= (?:\w+ly "
        r"|well )?(?:at(?! the (?:moment|time|same)| present)|hot|warm|cool|above|below|under"
        r"|over|close)\b)",
    ),
    (
        r"\g<d> has been idle",
        r"(?:nothing|no jobs?) (?:has|have) (?:run|been running) on (?P<d>(?:GPU \d+"
        r"|the (?:GPU|card|CPU)|it))",
    ),
    (
        "is held by",
        r"(?:works?|(?:is|are) (?:working|computing|busy))(?: hard)? (?:on|for|with)(?= job\b)",
    ),
    (
        "is not held",
        r"is (?:not (?:held|used)|unused) by (?:a|any) job",
        r"(?:is held by|has) no job|held by nobody",
        r"(?:that|which) is (?:no|not a) job",
        r"(?:(?:and|but|although|though|while) )?no job holds (?:it|one)",
        r"(?:but )?not (?:with|by|for) a job",
    ),
    (r"GPUs \g<a> to \g<b>", r"gpu (?P<a>\d+) to gpu (?P<b>\d+)"),
)
