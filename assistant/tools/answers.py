"""What looks, by its name: the tools of the role answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from assistant.facts.fact import Adder
from assistant.retrieval import quoted, search
from assistant.tools import compare, devices, energy, jobs
from assistant.tools.call import Call
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
    return _docs(question) if call.tool == "docs" else LOOKERS[call.tool](daemon, call)


def _help(daemon: Client, call: Call) -> Told:
    return stated(_CAN, _TRY)


def _other(daemon: Client, call: Call) -> Told:
    return stated("I did not find out what this asks about, or it is nothing that I can do.", _CAN, _TRY)


def _docs(question: str) -> Told:
    """What the manual says, word for word, and where."""
    passages = search(question)
    add = Adder("docs", "", "the manual", time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.words(f"passage{i}", passage.heading or passage.file, passage.text)
    return Told(tuple(add.facts), lambda _: [quoted(passages), "" if passages else _TRY], quotes=True)


LOOKERS: dict[str, Looker] = {
    "device": devices.device,
    "history": devices.history,
    "alerts": devices.alerts,
    "job": jobs.one,
    "jobs": jobs.several,
    "waiting": jobs.waiting,
    "queue": jobs.queue,
    "log": jobs.log,
    "energy": energy.energy,
    "compare": compare.compare,
    "help": _help,
    "other": _other,
}
