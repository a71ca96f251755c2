"""Hold what people say of devices.

Each row is a meaning and the phrases that have it, as regular expressions; see `paraphrases`.
"""

from __future__ import annotations

from gpudeck.assistant.writing.checker import phrase_parts as parts

ROWS: tuple[tuple[str, ...], ...] = (
    ("has been idle", r"(?:is|are|has been|have been) free(?= for (?:[a-z]+ )*\d)"),
    ("is unknown", r"(?:is|are) missing"),
    ("draws", r"(?:is |are )?pulling|pulls"),
    ("and is idle", r"and (?:has )?nothing to do"),
    ("no jobs are running", r"all (?:is|was) quiet"),
    (
        r"\g<d> has been idle for \g<v>",
        r"it(?:[’']s| has| is) (?:been )?(?P<v>[\w ]+?) since (?P<d>GPU \d+|the (?:GPU|CPU))"
        r" was (?:last )?(?:in use|used|busy)",
    ),
    ("no NVIDIA GPU found", r"(?:the|this) (?:machine|computer|system) has no (?:NVIDIA )?GPU"),
    ("drew", r"pulled"),
    ("is busy", r"(?<=gpus )(?:is|are) active"),
    ("is", r"runs(?= (?:hottest|coolest|busiest)\b)"),
    ("is nearly full", r"(?:is|are) (?:close to |nearly |almost )?exhausted"),
    ("is at", r"(?:dropped|cooled|sank|went down|came down)(?: back)? to(?= \d)"),
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
        r"no jobs? (?:(?:is|are) (?:running on|using|holding)|runs? on|uses?)"
        r" (?P<d>GPU \d+(?:(?:,|,? and|,? or) GPU \d+)*|(?:the (?:GPU|card|CPU)|it)\b)",
    ),
    ("both GPUs are idle", r"neither (?:of the )?(?:gpu|card)s? (?:is|are) in use"),
    ("idle is", r"nobody (?:is using|uses|is on)"),
    ("not idle", r"(?:not|never) (?:been )?idle"),
    (
        "is busy",
        r"(?:is|are|has been|have been) (?:at work|working|computing"
        r"|under (?:[a-z]+ )?load)(?! (?:on|for|by)\b)",
    ),
    (
        r"\g<n> is busy",
        r"(?<!of )(?P<n>(?:gpu|card)s?(?: [\d ,and]*\d)?) (?:is|are) (?:being )?"
        r"(?:fully used|in use|used)(?! (?:by|at|for|to)\b)",
    ),
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
        r"(?:is not|isn't) (?:held|used|reserved) by (?:a|any) job|is unused by (?:a|any) job",
        r"(?:is held by|has) no job|held by nobody",
        r"(?:that|which) is (?:no|not a) job",
        r"(?:(?:and|but|although|though|while) )?no job holds (?:it|one)",
        r"(?:but )?not (?:with|by|for) a job",
    ),
    (r"GPUs \g<a> to \g<b>", r"gpu (?P<a>\d+) to gpu (?P<b>\d+)"),
)
