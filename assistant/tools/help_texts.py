"""Say what the assistant can do, and why a request is not answered or carried out."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.intents.guards import Refusal
from gpudeck.assistant.intents.understand import LONGEST_REQUEST
from gpudeck.assistant.tools.how_to import command_of
from gpudeck.language.words import Words

_EXAMPLES = (
    'For example: "which GPU is the hottest?", "can I start a 20 GB job now?", "why did job 9 '
    'fail?", "compare gpu 0 with gpu 1", "cancel job 7".'
)
_ABILITIES = (
    "I can tell you how GPUs and jobs are and were, who uses them, why jobs wait or failed, when "
    "they start and end, and what used how much energy. I write reports, find what can be cleaned "
    "up, and propose orders. Nothing is done before you allow it."
)
_PROBLEMS = {
    "unread": "I do not understand {words} in this order.",
    "command": "I do not understand {words} in this order. If that belongs to the command, put the "
    "command in quotes.",
    "forbidden": "I read that as a request not to do something.",
    "condition": "I cannot make an order depend on a condition: {words}.",
    "time": "I carry out an order at once or not at all, and not at another time: {words}.",
    "several": "I carry out one order at a time, and this reads like several: {words}.",
    "target": "I do not know which job or GPU you mean. Name it, for example by its number.",
    "lacking": "What shall the new job run? Write its command, for example: python train.py. The "
    "card will show the options that I have kept.",
    "arguments": "I do not know which argument of the command {words} is. Give it as the command "
    "takes it, for example: run job 12 again with --seed 42.",
    "setting": "I know no setting that is called {words}. In a terminal, `gpudeck settings` lists "
    "them; in the window, the page Settings.",
    "change": "I do not know what shall be more or less, and by how much. Say it, for example: job "
    "7 again with twice the memory.",
    "priority": "I do not know which priority it shall have. It is a whole number: a higher one is "
    "served earlier, and 0 is usual. Say it, for example: set the priority of job 7 to 10.",
}


_DECLINED = {
    "cannot": "I cannot do that: I only know this machine's GPUs and jobs, and orders of GPU Deck. "
    "Nothing was changed.",
    "forbidden": "No. I read no passwords and no files of other people or of the system, I touch "
    "nobody else's processes or data in secret, and nothing is done before a person allows it. "
    "Nothing was changed.",
    "unclear": "I do not know which job or GPU you mean. Name it, for example by its number.",
    "unmeasured": "GPU Deck does not measure or keep that, so I have no value for it.",
    "serial": "GPU Deck does not keep the serial numbers of cards. In a terminal: `nvidia-smi "
    "--query-gpu=index,name,serial --format=csv`.",
    "mode": "GPU Deck does not read the modes of cards. In a terminal: `nvidia-smi "
    "--query-gpu=index,persistence_mode,compute_mode,mig.mode.current --format=csv`.",
    "host_memory": "GPU Deck does not measure the host memory of jobs. In a terminal, `ps -o "
    "rss,args -u USER` shows that of a user's processes; `gpudeck submit --host-memory 16GiB` "
    "limits it.",
    "checkpoint": "GPU Deck does not know the checkpoints of programs. A job's own files are in "
    "its folder: `gpudeck jobs 7` names it, and `gpudeck logs 7` shows what the program said.",
    "access": "GPU Deck does not know who may log in here. In a terminal, `getent passwd` lists "
    "the accounts, and `gpudeck limits` what users of the shared queue may use.",
    "speed": "GPU Deck keeps no speeds of models. In a terminal, `gpudeck bench` measures a model "
    "that is served.",
}


def declined(why: str, words: Words) -> str:
    """Say why a request is not a question or an order that the assistant takes.

    Args:
        why: A key of the texts, `talk KIND` for small talk, `order VERB` or `ask SUBJECT`.
        words: The language.
    """
    kind, _, name = why.partition(" ")
    if kind == "talk":
        return talk(name, words)
    if kind == "order":
        told = _ELSEWHERE.get(name)
        return words.text(told) if told else words.text(_DECLINED.get(name, _DECLINED["cannot"]))
    if kind == "ask":
        return words.text(_DECLINED.get(name, _DECLINED["unmeasured"]))
    return words.text(_DECLINED[why])


_ELSEWHERE = {
    "serve": "I do not start models. In a terminal: `gpudeck serve FOLDER`; in the window: the "
    "page Models. Nothing was changed.",
    "unserve": "I do not stop served models. In a terminal: `gpudeck models stop NAME`; in the "
    "window: the page Models. Nothing was changed.",
    "download": "I do not fetch models. In a terminal: `gpudeck models pull NAME`; in the "
    "window: the page Models. Nothing was changed.",
    "export": "I do not write files. In a terminal: `gpudeck usage --out usage.csv` for the hours "
    "and the energy that jobs used, by user and month, `gpudeck export --since 24h --out "
    "history.csv` for the readings of the devices, `gpudeck jobs --json` for the list of jobs. A "
    "spreadsheet opens files whose names end with .csv. Nothing was changed.",
    "open": "I cannot open pages. The rail on the left of the window has them, and Ctrl+K finds "
    "everything by its name.",
    "free": "I do not take programs off a GPU that are no jobs. In a terminal: `gpudeck suspend "
    "--pid PID` for a program of yours (`gpudeck processes` lists them), `gpudeck free 0 --until "
    "23:00` for all jobs of a GPU. Nothing was changed.",
    "message": "I send no messages to people. The notices of a job go to those who ask for them: "
    "`gpudeck notify`. Nothing was changed.",
    "account": "I do not change users and their rights. The manual's page on shared machines says "
    "how an administrator does. Nothing was changed.",
    "file": "I do not copy, move or pack files. Nothing was changed.",
    "power": "I do not limit the power of GPUs, as that needs the rights of an administrator. In a "
    "terminal: `sudo nvidia-smi -i 0 -pl 300` limits GPU 0 to 300 W until the next boot; in the "
    "window, the page of the GPU checks a value and prints the command. Nothing was changed.",
    "limits": "I do not limit single users. In a terminal, an administrator does: `gpudeck limits "
    "ann --gpus 4 --gpu-hours 100`. Nothing was changed.",
    "shutdown": "I do not switch machines or services off or on. Nothing was changed.",
}
"""Orders that another part of the program carries out."""


_TALK = {
    "hello": "Hello. Ask me about this machine's GPUs and jobs, or tell me what to do with them.",
    "thanks": "You are welcome.",
    "bye": "Goodbye. The queue goes on without this window.",
    "complaint": "I am sorry about that. Tell me what you want to know or to have done, and "
    "name the job or the GPU; I may then do better.",
    "yes": "If an order waits for you, approve it on its card. I do nothing on a yes alone.",
    "no": "Nothing was changed.",
    "self": "I am the assistant of GPU Deck. A small encoder on this machine reads your "
    "requests, and templates write the answers. If you have chosen a language model, it may write "
    "briefs and reports. Nothing leaves this machine.",
    "outside": "I cannot help with that: I only know this machine's GPUs and jobs, and GPU Deck.",
}
"""What is said to small talk, and to what has nothing to do with the machine."""


def talk(kind: str, words: Words) -> str:
    """Answer small talk."""
    if kind == "abilities":
        return abilities(words)
    return words.text(_DECLINED["unclear"] if kind == "unclear" else _TALK[kind])


def abilities(words: Words) -> str:
    """Say what the assistant can do."""
    return f"{words.text(_ABILITIES)}\n\n{words.text(_EXAMPLES)}"


def not_understood(question: str, words: Words) -> str:
    """Say that a request is not understood."""
    if len(question) > LONGEST_REQUEST:
        return words.text(
            "Your request is too long: I read at most {n} characters.", n=LONGEST_REQUEST
        )
    first = words.text("I did not understand the question.")
    return f"{first}\n\n{words.text(_EXAMPLES)}"


def refusal(found: Refusal, words: Words, verb: str = "", command: str = "") -> str:
    """Say why a request with the words of an order is not proposed, and which command does it.

    Args:
        found: What is wrong with it.
        words: The language.
        verb: The kind of order, in the words of the encoder.
        command: The command line of an order that is for another time.
    """
    why = words.text(_PROBLEMS[found.problem], words=quoted(found.words))
    if found.problem == "time" and command:
        at = f"echo '{command}' | at 20:00"
        why += " " + words.text(
            "In a terminal, `at` does it, for example: `{command}`.", command=at
        )
    text = f"{why} {words.text('So I propose nothing, and nothing was changed.')}"
    if "`" in text or found.problem == "forbidden" or not (command := command_of(verb)):
        return text
    known = words.text("In a terminal, `{command} --help` shows such orders.", command=command)
    return f"{text} {known}"


def left_out(unread: tuple[str, ...], words: Words) -> str:
    """Say which words a query leaves out."""
    return words.text("I do not understand {words}, and left it out.", words=quoted(unread))


_WITHOUT = {
    "by": "I cannot break this down like that.",
    "compare": "I have nothing to compare this with.",
    "when": "I do not know when that was or will be.",
    "measure": "GPU Deck does not measure all of what you ask for.",
    "user": "This is for everybody, not for one user.",
    "folder": "I cannot limit this to a folder.",
    "jobs": "You named no job, so this is about all that come into question.",
    "other": "I could not take into account all that you referred to.",
    "second": "I read something else in your request, too, and left it out: ask it by itself.",
    "states": "This is not only for GPUs that were idle or busy.",
}
"""What is said of parts of a question without letters, by their fields."""


def without(left: Sequence[tuple[str, str]], words: Words) -> list[str]:
    """Say in a sentence each which parts of a question the answer does not take into account.

    Args:
        left: Their fields with their letters, or with a mark of the encoder.
        words: The language.
    """
    marked = [field for field, letters in left if letters.startswith("@") or field in _MARKS]
    spoken = tuple(letters for field, letters in left if field not in marked)
    found = [words.text(_WITHOUT.get(field, _WITHOUT["other"])) for field in marked]
    if spoken:
        said = ", ".join(quoted((one,)) for one in spoken)
        found.append(words.text("I could not take {words} into account.", words=said))
    return list(dict.fromkeys(found))


_MARKS = frozenset({"by", "compare", "when", "measure", "states"})


def quoted(parts: tuple[str, ...]) -> str:
    """Return foreign words as Markdown, in quotes."""
    return f"“{phrases.escaped(' '.join(parts), 120)}”"
