"""Make an order for a new job: of its phrases, or of what the encoder found where words are left.

The command is always the one that ends by its form. Where the phrases leave words over, it counts
only if the encoder has found the same letters, and the options are the encoder's.
"""

from __future__ import annotations

import re

from gpudeck.assistant.intents import guards, thresholds
from gpudeck.assistant.intents.guards import Refusal
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.orders import OF_NEW_JOBS, Orders
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.submission import Submission, read_submission
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading
from gpudeck.scheduler.protocol.errors import UserError

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*['’]?")


def new_job(
    request: str, found: Reading, known: Known, state: State, now: float
) -> Order | Refusal:
    """Return the order for a new job, or why it is not proposed. The arguments are `compose`'s."""
    job = read_submission(request, known.jobs, now)
    if not job.unread:
        return _order(job)
    commands = [letters for field, letters in found.spans if field == "command"]
    if commands and not (job.command or job.workload):
        job = read_submission(request, known.jobs, now, commands[0].split()[0])
    try:
        said = Orders(found, known, state, now, request).said_of_new_job()
    except (Unread, UserError, ValueError):
        return Refusal("command", job.unread)
    order = _order(job._replace(options=said))
    rest = guards.outside(request, found, OF_NEW_JOBS)
    if doubt := guards.doubted(rest, found._replace(spans=(), places=()), order, now):
        return doubt
    words = re.findall(r"[^\s,;.!?:()¡¿]+", rest)
    left = tuple(word for word in words if not _is_filler(word, request, found, known))
    sure = found.chance >= thresholds.SURE and found.chance * found.certainty >= thresholds.CLEAR
    if left or not sure or [_bare(job.command)] != [*map(_bare, commands)]:
        return Refusal("command", left or job.unread)
    return order


def _order(job: Submission) -> Order:
    return Order("submit", command=job.command, workload=job.workload, params=dict(job.params),
                 options=job.options)  # fmt: skip


def _bare(command: str) -> str:
    """Return a command without quotes around it and marks behind it."""
    return command.strip(" \"'`“”„«».,;!?")


def _is_filler(word: str, request: str, found: Reading, known: Known) -> bool:
    """Return whether a word is surely nothing that a new job needs."""
    chances = [one.filler for one in found.loose if word in request[one.first : one.last]]
    is_name = word in (*known.jobs, *known.groups, *known.users)
    return (_WORD.fullmatch(word) is not None and not is_name
            and min(chances, default=0.0) >= thresholds.FILLER)  # fmt: skip
