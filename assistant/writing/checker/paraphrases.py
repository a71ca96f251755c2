"""Rewrite what people say in many ways in the words that the checker reads.

Each row is a meaning and the phrases that have it, as regular expressions. A meaning is one that a
fact decides. A phrase that means more than any fact can say becomes a word that is in no table of
`gpudeck.assistant.writing.checker.lexicon`, so its sentence is refused.
"""

from __future__ import annotations

import re

_STANDS = r"(?:is|are|stays|remains|does|do|sits?|stands?|lies?|has|have)"
_SO_FAR = r"(?: (?:still|now|currently|gone|been|just))*"
_BE = r"(?:is|are|was|were)"
_CANNOT = r"(?:can ?not|could not|will not|does not|do not|can't|won't|must not)"
_NEVER = r"(?:never|not|did not|didn't)(?: once)?"
_NEARLY = r"(?:close to|near|nearly at|almost at|(?:nearly|almost) reach(?:es|ed)?)"
_COUNT = r"(?P<n>the|all|both|other|two|three|four|five|six|seven|eight)"
_EACH = r"(?P<n>a|one|no|each|every|another|any|neither)"

_ROWS: tuple[tuple[str, ...], ...] = (
    # devices
    (
        "is idle",
        rf"{_STANDS}{_SO_FAR} (?:doing )?nothing(?: to do)?(?! but\b)",
        rf"{_STANDS}{_SO_FAR} (?:no|without) work(?: to do| at all)?",
        rf"{_STANDS}{_SO_FAR} (?:not (?:being )?used|back to idle|idle|idling|standing by|quiet)",
        r"idles|computes nothing|(?:is|are) not in use",
    ),
    ("both GPUs are idle", r"neither (?:of the )?(?:gpu|card)s? (?:is|are) in use"),
    ("idle is", r"nobody (?:is using|uses|is on)"),
    ("not idle", r"(?:not|never) (?:been )?idle"),
    ("is busy", r"(?:is|are) (?:at work|working|computing|under load)(?! (?:on|for|by)\b)"),
    (r"\g<n> is busy", r"(?P<n>(?:gpu|card)s?(?: \d+)?) (?:is|are) (?:fully used|in use)(?! by\b)"),
    (
        "held by",
        r"(?:held|used|occupied|taken|in use|reserved|claimed|(?:kept )?busy) by(?= jobs?\b)",
    ),
    ("is", r"runs(?= at\b)"),
    ("is held by", r"(?:works?|(?:is|are) (?:working|computing|busy)) (?:on|for|with)(?= job\b)"),
    (
        "is not held",
        r"(?:is held by|has) no job|held by nobody",
        r"(?:that|which) is (?:no|not a) job",
        r"(?:(?:and|but|although|though|while) )?no job holds (?:it|one)",
        r"(?:but )?not (?:with|by|for) a job",
    ),
    (r"GPUs \g<a> to \g<b>", r"gpu (?P<a>\d+) to gpu (?P<b>\d+)"),
    # jobs
    (r"jobs \g<a> to \g<b>", r"job (?P<a>\d+) to job (?P<b>\d+)"),
    (r"has been running for \g<n>", r"(?:was )?started (?P<n>\d[\w ]*?) ago"),
    ("", r",? ?(?:once|as soon as) [\w.-]+ is (?:done|over|finished)"),
    ("failed", r"crashed|broke down|went wrong|did not succeed|was not successful"),
    ("succeeded", r"went well|(?:was|were) successful|worked out"),
    ("started", r"(?:has|have) (?:only )?(?:just )?(?:begun|launched)"),
    (
        "is queued",
        rf"{_CANNOT} (?:yet )?(?:start|begin|run)(?: yet)?",
        r"(?:is|are) (?:held back|on hold|lined up|in line|(?:up )?next)",
        r"(?:has|(?<!not )have|had) (?:yet )?to wait",
    ),
    ("queued", r"waiting in (?:the )?(?:queue|line)"),
    (
        r"\g<n> left",
        r"(?P<n>\d[\d.]* (?:s|min|h|seconds|minutes|hours)) (?:more|longer)(?! than)",
    ),
    (r"\g<n> has ended", r"(?P<n>job \d+) is over"),
    (r"\g<n> jobs", rf"{_COUNT} (?:runs|tasks|measurements|programs)"),
    (r"\g<n> job", rf"{_EACH} (?:task|measurement|run)"),
    # alerts
    ("is active", r"(?:is|are) (?:still |yet )*(?:open|ongoing|going on|in force|not over)"),
    (
        r"\g<n> \g<a> is active",
        r"there (?:is|are) (?P<n>\w+) (?:open|active|ongoing) (?P<a>alerts?)",
    ),
    (r"alert\g<s>", r"warning(?P<s>s?)"),
    # the queue
    (
        "because the queue is paused",
        r"until the queue (?:goes on|is (?:resumed|opened again))",
        r"while the queue (?:is paused|stands still)",
    ),
    ("is not paused", r"(?<=queue )(?:goes on|is open|is moving|moves)"),
    # values
    (
        "close to limit",
        rf"(?:(?:is|are|runs|comes|gets|draws) )?(?:very )?{_NEARLY}"
        r" (?:its|the|their) (?:power )?limit(?: of)?",
    ),
    (
        "close to limit, the limit of",
        r"(?:uses|draws|takes) (?:nearly|almost) all of (?:its|the)(?= \d)",
    ),
    ("slowed down (too hot)", r"slowed down (?:by|because of|due to) (?:the |its )?heat"),
    (
        "never above",
        rf"{_NEVER} (?:go|went|got|gets|rose|rise|climb|climbed|come|came) (?:above|over|beyond)",
    ),
    (
        "never below",
        rf"{_NEVER} (?:go|went|got|gets|fell|fall|dropped|drop|sank|come|came) (?:below|under)",
    ),
    ("at most", r"no longer than"),
    (r"p\g<n>", r"(?P<n>95|99) % of (?:the|all|its) calls"),
    (
        "was at the highest",
        r"was (?:the )?(?:hottest|warmest|busiest) at",
        r"(?:(?:has|have) )?cooled (?:down )?from",
    ),
    ("is at", r"(?:(?:has|have) )?cooled (?:down )?to"),
    ("had a mean of", r"averaged"),
    ("at the highest", r"at (?:its|the) worst"),
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
        rf"(?<!this job )(?<!this device ){_BE} (?:not|never)"
        r" (?:known|read|measured|available|reported)",
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
        r"(?:draws?|drew|uses?|takes?|consumes?) no power",
        r"is an? job",
        r"no process(?:es)?",
        r"room for",
        r"the (?:first|last|latest|newest|oldest) (?:job|one|gpu|alert)",
        r"keeps? \w+ing",
        r"will (?:start|begin|run) (?:in|at|within|after)(?= \d)",
    ),
)
_TABLE = tuple(
    (re.compile(rf"(?<![\w{{.])(?:{'|'.join(phrases)})(?![\w}}])", re.IGNORECASE), meaning)
    for meaning, *phrases in _ROWS
)


def rewritten(sentence: str, quoted: str) -> str:
    """Return the sentence with every phrase in the words that the checker reads.

    Args:
        sentence: The sentence, perhaps with slots.
        quoted: The words of the facts, in lower case: a phrase that stands there is left as it is.
    """
    for pattern, meaning in _TABLE:
        found = pattern.search(sentence)
        if found and found[0].lower() not in quoted:
            sentence = pattern.sub(meaning, sentence)
    return sentence
