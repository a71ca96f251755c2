"""Regular expressions that recognize requests (see `rules`) in masked text in lower case."""

from __future__ import annotations

import re

STATES = {
    "queued": r"wait(?:s|ing)?|queued|pending",
    "running": r"running",
    "failed": r"failed",
    "cancelled": r"cancel(?:l)?ed",
    "lost": r"lost",
    "all": r"all|everything|every job",
}
WORKLOADS = {
    "attention": r"(?:flash[- ]?)?attention",
    "gemm": r"gemm|mat(?:rix)?[- ]?(?:mul(?:tiply)?|product|multiplication)",
    "copy": r"(?:memory )?copy|memory bandwidth",
    "compare": r"compare|comparison",
    "validate": r"validat(?:e|ion)",
    "tune": r"tun(?:e|ing)",
    "rain": r"rain|rewindable generation",
}
KINDS = {
    "caches": r"caches?",
    "logs": r"logs?",
    "dumps": r"(?:core )?dumps?|cores?",
    "processes": r"process(?:es)?|orphans?",
    "models": r"models?|weights|duplicates?",
    "memory": r"shared memory|shm",
    "results": r"results?|artefacts?|artifacts?|checkpoints?",
}
PERIODS = {
    "today": r"today",
    "yesterday": r"yesterday",
    "night": r"(?:last|this|over) ?night|overnight",
    "weekend": r"weekend",
    "week": r"(?:this|last|past|the) week",
    "month": r"(?:this|last|past|the) month",
    "hour": r"(?:this|last|past) hour",
    "day": r"(?:last|past) day",
    "all": r"ever|all time|so far",
}
MORNING, EVENING = "06:00", "20:00"
STATS = {
    "max": r"max(?:imum)?|highest|hottest|peak|most",
    "min": r"min(?:imum)?|lowest|coolest|least",
    "mean": r"mean|average|avg",
}
LAST = r"(?:my |the )?(?:last|latest|newest|most recent|previous) (?:job|run|one)"
JOB = re.compile(
    r"(?:\b(?:jobs?|runs?|tasks?|id)|#)(?:\s+(?:number|nr\.?|no\.?|id|named"
    r"|called))?\s*#?\s*(\{[nw]\d+\})|"
    r"(\{w\d+\})(?= (?:job|run|task|one)\b)"
)
ANY = re.compile(r"\{[nw]\d+\}")
GPU = re.compile(r"\b(?:gpus?|devices?|cards?)\s*(?:number|nr\.?|no\.?)?\s*#?\s*(\{n\d+\})")
GPUS = re.compile(r"(\{n\d+\})\s*gpus?\b|\b(?:on|with|using) (a|one|the) gpu\b")
AGO = re.compile(
    r"(?:last|past|previous|in|of|since|for)\s+(?:the )?(?:last |past |previous"
    r" )?(\{n\d+\})\s*(min|h|d|w)\w*"
)
SINCE = re.compile(r"(?:since|from|after|starting)\s+(\{t\d+\})")
UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}

WAITS = re.compile(
    r"\b(?:why|what|when|how long)\b.*(?:\bwait(?:s|ing)?\b|\bhold(?:s|ing)? up\b"
    r"|\bblock(?:s|ing)?\b|\bturn\b|\bkeeps?\b|"
    r"\b(?:still |only )?(?:queued|pending)\b|\bnot? (?:yet )?(?:start|run|begin)|n'?t"
    r" (?:it )?(?:start|run|begin)|\bahead of\b|"
    r"\btill?\b.*\b(?:start|begin)s?\b)|\bwhen (?:will|does|do|is|can)\b.*\b(?:start|begin"
    r"|run|its turn)\b|\bstuck\b"
)
QUEUE = re.compile(
    r"\bhow (?:long|full|big) is the queue\b|\bqueue (?:length|status|state)\b|\b(?:state"
    r"|status|length) of the queue\b|"
    r"\bis the queue\b|\bhow many (?:jobs )?(?:wait|are (?:waiting|queued|in the queue))\b"
    r"|\bhas the queue\b"
)
COMPARE = re.compile(
    r"\b(?:compare[ds]?|comparison|versus|vs|side by side|differen(?:ce|t)|faster|slower"
    r"|quicker|better|hotter|cooler|busier|longer)\b|"
    r"\bthan (?:its|the)\b"
)
ENERGY = re.compile(r"\benergy\b|\bjoules?\b|\b[km]?wh\b|\belectricity\b|\bpower bill\b")
LOG = re.compile(
    r"\b(?:logs?|tail|output|print(?:ed|s)?|stdout|stderr|traceback|last lines?|say|said"
    r"|mention(?:s|ed)?)\b"
)
ALERTS = re.compile(
    r"\b(?:alerts?|alarms?|warnings?|healthy?|xid|ecc|(?:pcie|nvlink|memory) errors?"
    r"|attention|everything (?:ok|okay|fine))\b"
)
HELP = re.compile(
    r"\s*(?:help|what can you do|what do you do|who are you|what are you|how can you help)\b"
)
DOCS = re.compile(
    r"\b(?:how (?:do|can|would|should) (?:i|you|we|one)|which (?:command|setting|option)"
    r"|what does .* mean|where (?:do|can) i)\b"
)
RAN = re.compile(r"\b(?:what|which|how many|any|list|show)\b.*\b(?:ran|run)\b|\bjobs\b")


MOVES = (
    r"move|bring|put|bump|prioriti[sz]e|urgent|jump|should go|next|first|to the (?:front|top"
    r"|end|back|bottom)|(?:before|after) (?:job|#)"
)
