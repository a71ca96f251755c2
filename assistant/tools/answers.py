"""What looks, by its name: the tools of the role answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from assistant.facts import Fact
from assistant.facts.fact import Adder
from assistant.retrieval import Passage, quoted, search
from assistant.tools import compare, devices, energy, jobs
from assistant.tools.call import Call
from assistant.tools.find import find_job
from assistant.tools.told import Told, stated
from scheduler.client import Client

Looker = Callable[[Client, Call], Told]

_CAN = (
    "I can tell how the devices are and were, how jobs stand, why they wait, what they printed, what used how much energy, and compare two "
    "jobs or two GPUs. I can write reports, look for what can be cleaned up, and propose to submit, cancel, move, hold or retry jobs: "
    "nothing is done before you allow it."
)
_TRY = 'For example: "what failed today?", "why is my job waiting?", "compare job 3 with job 2", "cancel job 7", "run gemm".'


def look(daemon: Client, call: Call, question: str) -> Told:
    """The facts, and how to tell them; `question` as it was asked, to be looked up.

    Raises NotFound, and UserError where something was not said.
    """
    match call.tool:
        case "docs":
            return _docs(question)
        case "log":
            return _log(daemon, call, question)
        case tool:
            return LOOKERS[tool](daemon, call)


def _help(daemon: Client, call: Call) -> Told:
    return stated(_CAN, _TRY)


def _other(daemon: Client, call: Call) -> Told:
    return stated("I did not find out what this asks about, or it is nothing that I can do.", _CAN, _TRY)


def _docs(question: str) -> Told:
    """What the manual says, word for word, and where."""
    passages = search(question)
    return Told(_quotes(passages, "the manual"), lambda _: [quoted(passages), "" if passages else _TRY], quotes=True)


def _log(daemon: Client, call: Call, question: str) -> Told:
    """The lines of a job's log that have the words of the question, with those around; then its end."""
    told, job = jobs.log(daemon, call), find_job(daemon, call.job() or "last").id
    passages = search(question, "logs", job)
    facts = (*told.facts, *_quotes(passages, f"the log of job {job}"))
    return Told(facts, lambda book: [quoted(passages, "logs") if passages else "", *told.say(book)], quotes=True)


def _quotes(passages: tuple[Passage, ...], where: str) -> tuple[Fact, ...]:
    """Each as a fact, with its place as the source."""
    add = Adder("quote", "", where, time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.words(f"passage{i}", passage.heading or passage.file, passage.text)
    return tuple(add.facts)


LOOKERS: dict[str, Looker] = {
    "device": devices.device,
    "history": devices.history,
    "alerts": devices.alerts,
    "job": jobs.one,
    "jobs": jobs.several,
    "waiting": jobs.waiting,
    "queue": jobs.queue,
    "energy": energy.energy,
    "compare": compare.compare,
    "help": _help,
    "other": _other,
}
