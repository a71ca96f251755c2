"""Hold what people say of jobs, alerts and the queue.

Each row is a meaning and the phrases that have it, as regular expressions; see `paraphrases`.
"""

from __future__ import annotations

from gpudeck.assistant.writing.checker import phrase_parts as parts

ROWS: tuple[tuple[str, ...], ...] = (
    ("finished", r"wrapped up"),
    ("CUDA out of memory", r"(?:it )?ran out of (?:CUDA|GPU) memory"),
    ("is doing", r"is in progress"),
    ("the throttling alert", r"the throttling(?! alert)"),
    ("over the time", r"during the (?:run|job)"),
    ("immediately", r"right away|straight away|at once"),
    ("so", r"which is why|that is why|for this reason"),
    (
        "did not pass",
        r"(?:did not|didn't|does not) (?:meet|keep|reach) (?:its|the) (?:\w+ )?(?:target|tolerance)"
        r"(?: of \d\S+)?",
    ),
    ("finish", r"wrap up"),
    ("verdict pass", r"passing verdict"),
    ("lost", r"disappeared|vanished"),
    ("waited", r"(?:was|were|kept|had been) waiting(?= for \d)"),
    ("was about", r"concern(?:s|ed)(?= (?:GPU|job)\b)"),
    ("", r"earlier,"),
    ("", r"is (?:not (?:a|an)|no) (?:concern|problem|issue)"),
    # jobs
    (r"jobs \g<a> to \g<b>", r"job (?P<a>\d+) to job (?P<b>\d+)"),
    (r"has running-for \g<n>", r"(?:was )?started (?P<n>(?:[a-z]+ ){0,3}\d[\w ]*?) ago"),
    ("once", r"as soon as"),
    (
        "it",
        r"(?:the|this) (?:run|task|measurement|experiment|training)(?= (?:took|ran|needed"
        r"|lasted|ended|finished|failed|passed|was|is|has|used|hit|reached)\b)",
    ),
    ("not busy", r"not under (?:[a-z]+ )?load"),
    ("unprovable", rf"{parts.CANNOT} (?:start|run|begin) after(?= job)"),
    ("is idle since", r"(?:has|have) (?:done|been doing) nothing since(?= \d)"),
    ("will finish soon", r"(?:is|are) about to (?:finish|end|be done)"),
    (
        r"\g<n> of \g<m>",
        r"(?P<n>\w+) out of (?P<m>(?:the )?\w+)(?= jobs| GPUs| alerts| measurements)",
    ),
    ("is busiest", r"is the (?:most (?:heavily )?(?:loaded|used))"),
    ("is least-busy", r"is the least (?:loaded|used|busy)"),
    ("did not finish", r"(?:did not|didn't) (?:run to completion|run to the end|complete)"),
    (
        r", attempt 1 of \g<j> failed",
        r"(?:(?:after|as|because|since) )?(?:the"
        r"|its) first attempt of (?P<j>job \d+) (?:has )?failed",
    ),
    (
        ", attempt 1 failed",
        r"(?:(?:after|as|because|since) )?(?:the|its) first attempt (?:has )?failed",
    ),
    ("starts at", r"(?:will be|is) (?:tried again|retried|restarted|started again) at"),
    (
        r"\g<w> for \g<j>",
        r"(?P<w>wait(?:s|ing)) for (?P<j>(?:job )?[\w.-]+) to (?:finish|end|be done|complete"
        r"|release the (?:GPU|CPU))",
    ),
    ("has been idle", r"(?:has|have) had (?:nothing|no work)(?: to do)?"),
    ("exited with status", r"(?:returned|exited with(?: code)?)(?: (?:exit )?code)?(?= \d)"),
    ("later", r"after (?:it was submitted|its submission)"),
    (
        "is plenty-free",
        r"(?:has|have|with) (?:plenty|lots|a lot) of (?:free )?memory(?: (?:free|left"
        r"|available))?(?! \()",
    ),
    (
        "is little-free",
        r"(?:has|have|with) (?:hardly any|almost no|very little"
        r"|little) (?:free )?memory(?: (?:free|left|available))?(?! \()",
    ),
    ("is behind", rf"{parts.CANNOT} (?:start|run|begin) before(?= job)"),
    (r"has been idle for \g<n>", r"(?:went|became|turned) idle (?P<n>\d[\w ]*?) ago"),
    ("is idle since", r"(?:went|became|has become|turned) idle (?:at|since)(?= \d)"),
    (
        r"holds \g<d> and will finish",
        r"will (?:free|release|leave) (?:up )?(?P<d>GPU \d+|the (?:GPU|card))(?= in)",
    ),
    (
        r"\g<j> failed because",
        r"the (?:reason for|cause of) the failure of (?P<j>(?:job )?[\w.-]+) (?:is|was)(?: that)?",
    ),
    (r"failed job\g<s>", r"(?:job )?failure(?P<s>s?)(?! of)"),
    ("full-load", r"at (?:almost |nearly )?full (?:load|utili[sz]ation|capacity|speed)"),
    ("failed", r"(?:stopped|ended|exited|quit|aborted|terminated)(?= [\w ]*?with (?:an )?error)"),
    (
        "because the queue is paused",
        r"(?:for|until) the queue (?:to be (?:resumed|released|unpaused)|to (?:go on|continue"
        r"|resume))",
    ),
    ("readings", r"measurements(?= (?:for|of|from|on)\b)"),
    ("was", r"ran(?= (?:\w+ly )?(?:at|hot|warm|full-load)\b)"),
    ("failed", r"(?:the )?failure of(?= job\b)"),
    ("is waiting for", r"(?:is|are) (?:blocked by|stuck behind|held up by)(?= job\b)"),
    ("GPUs are held", r"GPUs (?:are running|run) jobs"),
    (r"\g<g> are held", r"jobs (?:are running|run) on (?P<g>GPUs? \d[\d ,toand]*)"),
    (r"\g<n> \g<u> left", r"(?P<n>\d+|[a-z]+) more (?P<u>seconds|minutes|hours)"),
    ("is busy", r"(?:is|are) doing (?:anything|something)"),
    ("highest", r"best(?= (?:rate|throughput|performance))"),
    ("lowest", r"worst(?= (?:rate|throughput|performance))"),
    ("no jobs are", r"(?:nobody|no one) (?:is|are)(?= (?:waiting|queued)\b)"),
    ("no job", r"not (?:a single|one) job"),
    ("", r"on this (?:machine|computer|system|server|host)"),
    ("no jobs are running", r"nothing(?: else)? (?:is |was )?(?:going on|happening)"),
    ("succeeded", r"(?:was|were) (?:a )?success(?:es)?"),
    ("the last job that failed", r"the (?:last|latest|most recent) failure"),
    ("will finish", r"(?:finishes|ends|is done|is finished)(?= in (?:[a-z]+ )*\d)"),
    (
        "is nearly-done",
        r"(?:is|are) (?:almost|nearly|practically|virtually) (?:done|finished|complete|through)",
    ),
    (
        r"\g<v> remain for \g<j>",
        r"(?P<v>\d[\d.]* (?:s|min|h|seconds|minutes|hours))(?: (?:remains?|(?:is"
        r"|are) left))? (?:until|before) (?P<j>(?:job )?[\w.-]+) (?:is|will be) (?:finished"
        r"|done|complete)",
    ),
    ("left", r"to do(?=[.,;]|$)"),
    ("every job", r"everything(?= (?:has|is|was|went|succeeded|finished|ran|passed)\b)"),
    (
        r"\g<n>",
        r"(?P<n>one|two|three|four|five|six|seven|eight|none|all|both|\d+) of (?:which|them"
        r"|these|those)",
    ),
    (
        r"\g<n> \g<s> is queued",
        rf"the queue (?:holds|has|contains) {parts.COUNT} (?:waiting |queued )?(?P<s>jobs?)",
    ),
    ("the only job that failed", r"the only failure"),
    (r"waited \g<n>", r"spent (?P<n>\d[\w ]*?) (?:waiting|in (?:the )?queue)(?: in the queue)?"),
    (
        "passed",
        r"(?:met|meets|kept|reached) (?:its|the) (?:\w+ )?(?:target|tolerance|requirement)s?",
    ),
    ("p99", r"99th percentile"),
    ("p95", r"95th percentile"),
    ("successfully", r"without (?:any )?(?:errors?|problems?|issues?|trouble|failures?)"),
    ("failed", r"crashed|broke down|went wrong|did not succeed|was not successful"),
    ("succeeded", r"went well|(?:was|were) successful|worked out"),
    ("started", r"(?:has|have) (?:only )?(?:just )?(?:begun|launched)"),
    (
        "is queued",
        rf"(?:{parts.CANNOT}|won't) (?:yet )?(?:start|begin|run)(?: yet)?",
        r"(?:is|are) (?:held back|held up|on hold|lined up|in line|(?:up )?next)",
        r"(?:(?:has|(?<!not )have|had) (?:yet )?to|must) wait",
    ),
    ("queued", r"(?<!nothing )(?<!something )(?:waiting |stuck )?in (?:the )?(?:queue|line)"),
    (
        "the queue is paused",
        r"(?:nothing(?: new| else)?|no (?:new |further |other |more )?jobs?) (?:will|can"
        r"|is able to) (?:start|run|be started)",
        r"nothing new starts",
    ),
    (
        r"\g<n> left",
        r"(?P<n>\d[\d.]* (?:s|min|h|seconds|minutes|hours)) (?:more|longer)(?! than)",
    ),
    (r"\g<n> has ended", r"(?P<n>job \d+) is over(?! \d)"),
    (r"\g<n> jobs", rf"{parts.COUNT} (?:runs|tasks|measurements|programs|checks|tests)"),
    (r"\g<n> job", rf"{parts.EACH} (?:task|measurement|run)"),
    # alerts
    ("cleared at", r"cleared since"),
    ("active, raised at", r"active since(?= \d)"),
    ("is active", r"(?:is|are) (?:still |yet )*(?:open|ongoing|going on|in force|not over)"),
    (
        r"\g<n> \g<a> is active",
        r"there (?:is|are) (?P<n>\w+) (?:open|active|ongoing) (?P<a>alerts?)",
    ),
    (r"alert\g<s>", r"warning(?P<s>s?)"),
    # the queue
    (
        "because the queue is paused",
        r"(?:until|once|when|before|as soon as) the queue (?:goes on|is (?:resumed|opened again))",
        r"while the queue (?:is paused|stands still)",
    ),
    ("is not paused", r"(?<=queue )(?:goes on|is open|is moving|moves)"),
)
