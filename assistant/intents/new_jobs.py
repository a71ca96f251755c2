"""Make an order for a new job: of its phrases, or of what the encoder found where words are left.

The command is always the one that ends by its form. Where the phrases leave words over, it counts
only if the encoder has found the same letters, and the options are the encoder's.
"""

from __future__ import annotations

import re

from gpudeck.assistant.intents import guards, thresholds
from gpudeck.assistant.intents.guards import Refusal
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.order_options import OF_NEW_JOBS, OrderOptions
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.submission import Submission, read_submission
from gpudeck.assistant.intents.times import words_of_time
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading
from gpudeck.scheduler.protocol.errors import UserError

_WORD = re.compile(r"[^\s,;.!?:()¡¿]+")
_NAMES_PROGRAM = re.compile(r"[^\W_]")
"""A command has a letter or a digit."""
_PLAIN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*['’]?")


def new_job(
    request: str, found: Reading, known: Known, state: State, now: float
) -> Order | Refusal:
    """Return the order for a new job, or why it is not proposed. The arguments are `compose`'s."""
    job = read_submission(request, known.jobs, now)
    if job.command and not _NAMES_PROGRAM.search(job.command):
        job = job._replace(command="", unread=(job.command,))
    commands = [letters for field, letters in found.spans
                if field == "command" and _NAMES_PROGRAM.search(letters)]  # fmt: skip
    late = bool(job.unread) and _begins_sooner(job.command, commands)
    if late or _ends_sooner(job.command, request, found):
        job = job._replace(command=_bare(commands[0]))
    elif not job.unread:
        return _order(job)
    elif commands and not (job.command or job.workload):
        job = read_submission(request, known.jobs, now, commands[0].split()[0])
    try:
        said = OrderOptions(found, known, state, now, request).said_of_new_job()
    except (Unread, UserError, ValueError) as unread:
        said_so = isinstance(unread, Unread) and str(unread)
        return Refusal("command", (said_so,) if said_so else job.unread)
    order = _order(job._replace(options=said))
    rest = guards.outside(request, found, OF_NEW_JOBS)
    left = tuple(word[0] for word in _WORD.finditer(request)
                 if not _has_place(word, found, known))  # fmt: skip
    doubt = guards.doubted(rest, found._replace(spans=(), places=()), order, now)
    if doubt is not None and (doubt.words or not left):
        return doubt
    if not (commands or job.command or job.workload):
        timed = words_of_time(rest, now)
        return Refusal("time", timed) if timed else order  # the person is asked for its command
    clear = found.chance * found.certainty >= thresholds.CLEAR
    sure = clear and found.plain >= thresholds.NEW_JOB
    if left or not sure or [_bare(job.command)] != [*map(_bare, commands)]:
        return Refusal("command", left or job.unread)
    timed = words_of_time(rest, now)  # such as "before midnight"
    return Refusal("time", timed) if timed else order


def _ends_sooner(command: str, request: str, found: Reading) -> bool:
    """Return whether the encoder ends a command before options that look like its arguments."""
    commands = [letters for field, letters in found.spans if field == "command"]
    if len(commands) != 1 or not command.startswith(f"{_bare(commands[0])} "):
        return False
    first = request.find(command)
    behind = _WORD.finditer(request, first + len(_bare(commands[0])), first + len(command))
    return all(_is_option(word, found) for word in behind)


def _begins_sooner(command: str, commands: list[str]) -> bool:
    """Return whether the encoder finds a program in front of a command that both end alike."""
    return len(commands) == 1 and bool(command) and _bare(commands[0]).endswith(f" {command}")


def _order(job: Submission) -> Order:
    return Order("submit", command=job.command, workload=job.workload, params=dict(job.params),
                 options=job.options)  # fmt: skip


def _bare(command: str) -> str:
    """Return a command without quotes around it and marks behind it."""
    return command.strip(" \"'`“”„«».,;!?")


def _is_option(word: re.Match[str], found: Reading) -> bool:
    """Return whether a word is, in part at least, in a field that a new job may have."""
    return any(
        field in OF_NEW_JOBS and word.start() < last and word.end() > first
        for (field, _), (first, last) in zip(found.spans, found.places, strict=True)
    )


def _has_place(word: re.Match[str], found: Reading, known: Known) -> bool:
    """Return whether a word is in a field of the new job, or surely nothing that it needs."""
    chances = [one.filler for one in found.loose
               if one.first < word.end() and one.last > word.start()]  # fmt: skip
    is_name = word[0] in (*known.jobs, *known.groups, *known.users)
    is_filler = min(chances, default=0.0) >= thresholds.FILLER
    is_plain = _PLAIN.fullmatch(word[0]) is not None
    return _is_option(word, found) or (is_plain and is_filler and not is_name)
