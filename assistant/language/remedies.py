"""Word what the log of a failed job shows, and what helps."""

from __future__ import annotations

from gpudeck.assistant.facts import phrases
from gpudeck.language.words import Words

_REMEDIES = {
    "gpu memory": "The GPU's memory was full. Reduce the batch, or give the job more memory.",
    "memory": "The machine's memory was full. Load less at once, or run fewer jobs together.",
    "nan": "A value became NaN or infinite. Lower the learning rate, clip gradients, check data.",
    "disk": "A disk is full. Free space there, for example with: gpudeck clean",
    "import": "A package or library is missing in the job's environment. Install it there.",
    "network": "The network or a server did not answer. Check it, then run the job again.",
    "driver": "The GPU or its driver reported an error. See: gpudeck alerts, gpudeck doctor",
    "permission": "The job may not read or write a file. Check its owner and mode.",
    "missing file": "A file that the job needs does not exist. Check its path and folder.",
    "killed": "Something ended the process, often the system when memory is full.",
    "time limit": "It ran as long as its time limit allows. Give it more time.",
    "lost": "The machine or the job's runner stopped. Run the job again.",
    "error": "This is the last error in its output.",
    "": "The output shows no cause that is known. Read its last lines.",
}


def advice(job: object, kind: str, line: str, words: Words) -> tuple[str, str]:
    """Return Markdown with the line of a log that shows why a job failed, and what helps.

    `kind` is one of `gpudeck.scheduler.protocol.failures.KINDS`.
    """
    log = words.text("The log of job {job} says:", job=job)
    return f"{log}\n\n{phrases.fenced(line)}", remedy(kind, words)


def remedy(kind: str, words: Words) -> str:
    """Return what helps against a kind of failure; empty stands for an unknown one."""
    return words.text(_REMEDIES[kind])
