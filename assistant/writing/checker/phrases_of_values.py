"""Hold what people say of values, and what no fact can say.

Each row is a meaning and the phrases that have it, as regular expressions; see `paraphrases`.
"""

from __future__ import annotations

from gpudeck.assistant.writing.checker import phrase_parts as parts

ROWS: tuple[tuple[str, ...], ...] = (
    # values
    ("", r"by far(?= the)"),
    (
        r", close to the total of \g<v>",
        rf",? ?(?:nearly|almost) (?:all of )?the (?:full|entire|whole|total) (?P<v>{parts.V})",
    ),
    ("is", r"equals"),
    ("took", r"came in at"),
    (r"\g<a> \g<u> of \g<b> \g<u>", r"(?P<a>\d[\d.]*) (?:out )?of (?P<b>\d[\d.]*) (?P<u>[GM]iB|W)"),
    ("together", r"total(?= (?:energy|power|memory)\b[^.]*\b(?:both|all|GPUs)\b)"),
    ("together", r"in total|all in all"),
    (r"no less than \g<v>", rf"(?P<v>{parts.V}) or (?:more|higher|longer|above|over)"),
    (r"no more than \g<v>", rf"(?P<v>{parts.V}) or (?:less|lower|shorter|below|under)"),
    ("throughout", r"all the time|the (?:whole|entire) time"),
    ("against", r"vs\.?|versus|compared (?:to|with)(?= \d)"),
    (
        "chosen by auto",
        r"(?:picked|chosen|selected) automatically|automatically (?:picked|chosen|selected)",
    ),
    (
        "close to limit, the limit is",
        rf"(?:(?:is|are|runs|comes|gets|draws) )?(?:very )?{parts.NEARLY} (?:its|the"
        rf"|their) (?:power )?limit of",
    ),
    (
        "close to limit",
        rf"(?:(?:is|are|runs|comes|gets|draws) )?(?:very )?{parts.NEARLY}"
        r" (?:its|the|their) (?:power )?limit(?: of)?",
    ),
    (
        "close to limit, the limit of",
        r"(?:uses|draws|takes) (?:nearly|almost) all of (?:its|the)(?= \d)",
    ),
    ("throttled (too hot)", r"slowed down (?:by|because of|due to) (?:the |its )?heat"),
    ("throttled", r"slowed down"),
    (
        "never above",
        rf"{parts.NEVER} (?:go|went|got|gets|rose|rise|climb|climbed|come|came) (?:above|over"
        rf"|beyond)",
    ),
    (
        "never below",
        rf"{parts.NEVER} (?:go|went|got|gets|fell|fall|dropped|drop|sank|come|came) (?:below"
        rf"|under)",
    ),
    ("at most", r"no longer than"),
    (r"p\g<n>", r"(?P<n>95|99) % of (?:the|all|its) calls"),
    (
        r"was at the highest \g<a> and is at \g<b>",
        rf"(?:(?:is|was|has|have) )?(?:cooled|come|gone|went|dropped|fallen|fell|sunk|sank"
        rf"|decreased|down)"
        rf" ?(?:back )?(?:down )?from (?:(?:its|a|the) (?:peak|high"
        rf"|maximum)(?: of)? )?(?P<a>{parts.V}) (?:down )?to (?P<b>{parts.V})",
    ),
    (
        r"was at the lowest \g<a> and is at \g<b>",
        rf"(?:(?:is|was|has|have) )?(?:warmed|heated|come|gone|went|climbed|risen|rose|grown"
        rf"|grew|increased|up)"
        rf" ?(?:up )?from (?:(?:its|a|the) (?:low"
        rf"|minimum)(?: of)? )?(?P<a>{parts.V}) (?:up )?to (?P<b>{parts.V})",
    ),
    (
        "is at",
        r"(?:has|have) (?:warmed up|heated up|cooled down|cooled|grown|risen|increased"
        r"|climbed|gone up|gone down|dropped|fallen|decreased) to(?= \d)",
        r"(?:is|are) (?:back |now )?(?:down|up) (?:to|at)(?= \d)",
    ),
    (
        r"and the \g<s> was",
        r"(?:after|following) (?:a|its|the) (?P<s>peak|maximum|mean|average|minimum) of",
    ),
    (
        ", the highest was",
        r"(?:(?:down|up) )?from (?:its|a|the) (?:peak|high|maximum|top)(?: value)? of",
    ),
    (
        r", the highest was \g<v>",
        rf"down from (?:(?:a|its|the) (?:peak|high|maximum) of )?(?P<v>{parts.V})",
    ),
    ("the highest of", r"(?:a|its|the) (?:high|top|record) of"),
    ("the lowest of", r"(?:a|its|the) low of"),
    (
        "was at the highest",
        r"was (?:the )?(?:hottest|warmest|busiest) at",
        r"(?:(?:has|have) )?cooled (?:down )?from",
    ),
    ("is at", r"(?:(?:has|have) )?cooled (?:down )?to"),
    ("known", r"(?:can|could) be (?:read|measured|known)"),
    ("overheating", r"(?:too|very) hot(?= ?(?:$|[.,;:]))"),
    ("is nearly full", r"(?:is|are) (?:nearly |almost )out of (?:free )?memory"),
    ("had a mean of", r"averag(?:ed|es|ing)(?: out at)?"),
    (
        "the counters are not readable",
        r"(?:the|its) counters (?:can ?not|could not|can't|couldn't) be read",
    ),
    (
        "not supported by this driver",
        r"(?:the|its|this) driver (?:does not|doesn't|did not) support (?:it|this|that)",
    ),
    ("at the highest", r"at (?:its|the) (?:worst|busiest|hottest|height)"),
    (
        r"over 85 % of the memory",
        r"(?:almost|nearly|practically|virtually) all (?:of )?(?:the|its) memory",
    ),
    ("used", r"loaded"),
    (
        "reached",
        r"warmed up to",
        r"(?:rose|climbed|went up|shot up|peaked) (?:to|at)",
        r"was up to",
    ),
    ("highest", r"peaking|topping out|peaks"),
    ("its mean", r"on average"),
    (
        "is unknown",
        rf"(?<!this job )(?<!this device ){parts.BE} (?:not|never)"
        r" (?:known|read|measured|available|reported)(?! (?:on|by|with|at|in)\b)",
        r"(?:could|can) ?not be (?:read|measured|known)",
    ),
    ("utilisation is unknown", r"has not been read(?: yet)?"),
    ("nothing is unknown", r"(?:has|have) been read"),
    ("unknown is the", r"nothing is known (?:about|of) the"),
    ("a", r"the same(?= [\w ]{3,20} of \d)"),
    # what no fact can say
    (
        "unprovable",
        r"out of memory",
        r"(?:ran|runs?|running) out of(?! (?:\w+ )?memory)",
        r"(?:draws?|drew|uses?|takes?|consumes?) no power",
        r"is an? job",
        r"no process(?:es)?",
        r"room for",
        r"the (?:newest|oldest) (?:job|one|gpu|alert)",
        r"(?:first|last|second|third) in (?:the )?(?:queue|line)",
        r"keeps? \w+ing",
        r"will (?:start|begin|run) (?:in|at|within|after)(?= \d)",
    ),
)
