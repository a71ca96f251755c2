"""Requests and what they need: role, tool, arguments; with paraphrases, politeness and typos. Each tool's last phrasings are held out."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SYSTEM = "You say which role and tool a request needs, with its arguments. Write slots such as {n1} as they are in the request."
HELD_OUT = 3
"""Phrasings of every tool, and words of every choice of words, that no training example has: the last ones."""


class Tool(NamedTuple):
    """A tool of a role, the arguments it takes from a request, and ways to ask for it. `<x>` is a choice of `WORDS`."""

    role: str
    name: str
    arguments: str
    phrasings: tuple[str, ...]


TOOLS = (
    Tool(
        "answer",
        "device",
        "metric=<metric>",
        (
            "what is the <metric>?",
            "how is the <metric>",
            "show me the <metric> please",
            "<metric>?",
            "current <metric>",
            "tell me the <metric>",
            "i want to know the <metric>",
            "how about the <metric> now",
            "give me the <metric>",
            "could i see the <metric>",
        ),
    ),
    Tool(
        "answer",
        "device",
        "metric=<metric> gpu={n1}",
        (
            "what is the <metric> of gpu {n1}?",
            "gpu {n1} <metric>",
            "how is the <metric> on card {n1}",
            "show <metric> of device {n1}",
            "<metric> for gpu {n1} please",
            "tell me gpu {n1}'s <metric>",
            "on gpu {n1}, what is the <metric>",
            "check the <metric> of card {n1}",
        ),
    ),
    Tool(
        "answer",
        "job",
        "job={n1}",
        (
            "how is job {n1}?",
            "what happened to job {n1}",
            "is job {n1} done?",
            "status of job {n1}",
            "job {n1}",
            "did #{n1} finish?",
            "why did job {n1} fail?",
            "how far is job {n1}",
            "what about number {n1} in the queue",
            "when will job {n1} be ready",
        ),
    ),
    Tool(
        "answer",
        "waiting",
        "job={n1}",
        (
            "why is job {n1} waiting?",
            "why does job {n1} not start",
            "what is job {n1} waiting for",
            "what holds up job {n1}?",
            "why is #{n1} still queued",
            "job {n1} is stuck in the queue, why?",
            "what keeps job {n1} from running",
            "when does job {n1} get its turn",
        ),
    ),
    Tool(
        "answer",
        "energy",
        "hours={n1}",
        (
            "what used the most energy in the last {n1} hours?",
            "energy of the last {n1} hours",
            "which job drew the most energy in {n1} hours",
            "how much energy went into jobs in {n1} hours",
            "power bill of the past {n1} hours",
            "joules spent in the last {n1} hours",
        ),
    ),
    Tool(
        "report",
        "brief",
        "",
        (
            "what happened?",
            "write a report",
            "give me a summary",
            "brief me",
            "what did i miss?",
            "overview please",
            "daily report",
            "what has been going on",
            "sum up the day",
            "bring me up to date",
            "any news from the machine",
        ),
    ),
    Tool(
        "report",
        "job",
        "job={n1}",
        (
            "write a report on job {n1}",
            "report job {n1}",
            "summary of job {n1} please",
            "a brief of job {n1}",
            "write up job {n1}",
            "make me a report about job {n1}",
            "document job {n1} for me",
            "i need a write-up of #{n1}",
        ),
    ),
    Tool(
        "housekeep",
        "scan",
        "",
        (
            "clean up",
            "free some disk space",
            "what can be deleted?",
            "find old files",
            "tidy the caches",
            "remove stale logs",
            "get rid of the debris",
            "is there anything to throw away",
            "make room on the disk",
            "look for leftovers",
        ),
    ),
    Tool(
        "operate",
        "cancel",
        "job={n1}",
        (
            "cancel job {n1}",
            "stop job {n1}",
            "kill {n1}",
            "please end job {n1}",
            "abort #{n1}",
            "terminate job {n1} now",
            "i don't need job {n1} any more, stop it",
            "get job {n1} off the gpu",
            "pull the plug on job {n1}",
            "call off job {n1}",
        ),
    ),
    Tool(
        "operate",
        "move",
        "job={n1} place=first",
        (
            "move job {n1} to the front",
            "run job {n1} next",
            "put job {n1} first",
            "job {n1} should go first",
            "prioritise job {n1}",
            "let job {n1} jump the queue",
            "bring #{n1} to the top",
            "job {n1} is urgent",
        ),
    ),
    Tool(
        "operate",
        "submit",
        "workload=<workload>",
        (
            "run <workload>",
            "start the <workload> workload",
            "launch a <workload> job",
            "queue <workload>",
            "benchmark <workload>",
            "please measure <workload>",
            "do a <workload> run",
            "i want to time <workload>",
        ),
    ),
    Tool(
        "operate",
        "submit",
        "command={w1}",
        (
            "run {w1}",
            "queue {w1}",
            "submit {w1} please",
            "start {w1} on the gpu",
            "execute {w1}",
            "launch {w1} when there is room",
            "put {w1} into the queue",
            "have {w1} run tonight",
        ),
    ),
    Tool(
        "operate",
        "pause",
        "",
        (
            "pause the queue",
            "hold everything",
            "stop starting new jobs",
            "don't start anything",
            "freeze the queue",
            "no more jobs for now",
            "let nothing new begin",
            "keep the queue still",
        ),
    ),
    Tool(
        "operate",
        "resume",
        "",
        (
            "resume the queue",
            "go on with the queue",
            "start jobs again",
            "unpause",
            "let the queue run",
            "continue",
            "carry on with the jobs",
            "the queue may go on",
        ),
    ),
)
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "metric": {
        "temp": ("temperature", "temp", "heat", "degrees", "how hot it is", "warmth"),
        "power": ("power", "power draw", "watts", "wattage", "electricity use", "consumption"),
        "memory": ("memory", "vram", "memory use", "gpu memory", "used memory", "video memory"),
        "util": ("utilisation", "load", "usage", "utilization", "how busy it is", "occupancy"),
        "tflops": ("tflops", "throughput", "flop rate", "tflop/s", "compute rate", "teraflops"),
    },
    "workload": {"attention": ("attention", "flash attention"), "gemm": ("gemm", "matrix product"), "copy": ("copy", "memory copy")},
}
_BEFORE = ("", "", "", "", "please ", "hey, ", "can you ", "ok now ", "quick: ")
_AFTER = ("", "", "", "", " please", " thanks", "!", " for me")


class Example(NamedTuple):
    """A masked request, and the line that says what it needs."""

    request: str
    route: str


def example(random: Random, held_out: bool) -> Example:
    """A request by a phrasing of training, or by one that is held out."""
    tool = random.choice(TOOLS)
    text, arguments = random.choice(_part(tool.phrasings, held_out)), tool.arguments
    for choice, meanings in WORDS.items():
        if f"<{choice}>" in arguments:
            meaning = random.choice(sorted(meanings))
            words = meanings[meaning]
            word = random.choice(words[:-1] if len(words) > HELD_OUT and not held_out else words)
            text, arguments = text.replace(f"<{choice}>", word), arguments.replace(f"<{choice}>", meaning)
    text = random.choice(_BEFORE) + text + random.choice(_AFTER)
    if random.random() < 0.3:
        text = _typo(random, text)
    text = text.capitalize() if random.random() < 0.2 and text[0] != "{" else text
    return Example(text, " ".join(filter(None, (tool.role, tool.name, arguments))))


def _part(phrasings: tuple[str, ...], held_out: bool) -> tuple[str, ...]:
    return phrasings[-HELD_OUT:] if held_out else phrasings[:-HELD_OUT]


def _typo(random: Random, text: str) -> str:
    """One letter of one word dropped, doubled, or swapped with its neighbour; never of a slot."""
    words = text.split(" ")
    able = [i for i, word in enumerate(words) if len(word) > 3 and "{" not in word]
    if not able:
        return text
    i = random.choice(able)
    word, at = words[i], random.randrange(1, len(words[i]) - 1)
    changed = (word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:], word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    words[i] = random.choice(changed)
    return " ".join(words)
