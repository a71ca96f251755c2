"""Say how something is done: by a command, and by asking for it."""

from __future__ import annotations

from gpudeck.assistant.query.table import VERBS
from gpudeck.language.numbers import capitalized
from gpudeck.language.words import Words

_COMMANDS = {
    "cancel": "gpudeck cancel 7",
    "hold": "gpudeck pause 7",
    "release": "gpudeck resume 7",
    "suspend": "gpudeck suspend 7",
    "pause": "gpudeck pause",
    "resume": "gpudeck resume",
    "move": "gpudeck move 7 --before 3",
    "priority": "gpudeck edit 7 --priority 5",
    "submit": "gpudeck submit --gpus 1 -- python train.py",
    "kill": "gpudeck kill 4321",
    "drain": "gpudeck drain 3",
    "undrain": "gpudeck undrain 3",
    "limit": "gpudeck groups NAME --limit 2",
    "edit": "gpudeck edit 7 --timeout 4h",
    "book": "gpudeck reserve 3 --until 18:00",
    "unbook": "gpudeck reserve cancel 1",
    "free": "gpudeck free 3 --until 18:00",
    "note": "gpudeck note 7 TEXT",
    "acknowledge": "gpudeck alerts",
    "undo": "gpudeck clean --undo",
    "retry": "gpudeck retry 7",
    "set": "gpudeck settings idle_dwell_s=30",
}
"""The command of each verb that has one."""
_SAID = {
    "cancel": "cancel job 7",
    "hold": "hold job 7",
    "release": "release job 7",
    "pause": "pause the queue",
    "resume": "resume the queue",
    "retry": "retry job 7",
    "move": "move job 7 to the front",
    "priority": "set the priority of job 7 to 5",
    "submit": "run python train.py on 2 gpus",
    "kill": "kill process 4321",
    "drain": "drain gpu 3",
    "undrain": "undrain gpu 3",
    "set": "set the temperature alert to 5",
}
"""What a person may say to the assistant instead."""


def command_of(verb: str) -> str:
    """Return the command line's name of a verb, such as `gpudeck cancel`; or an empty text."""
    return " ".join(_COMMANDS.get(verb, "").split()[:2])


def how_to(verb: str, words: Words) -> str:
    """Return the command of a verb, and the words for it."""
    parts = [words.text(VERBS[verb].about)]
    parts[0] = capitalized(parts[0])
    if command := _COMMANDS.get(verb):
        parts[0] += f": `{command}`"
    text = f"{parts[0]}."
    if said := _SAID.get(verb):
        text += " " + words.text("Or tell me: “{said}”.", said=words.text(said))
    return text
