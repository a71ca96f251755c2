"""Say what the terms of the program mean, in a sentence each."""

from __future__ import annotations

from gpudeck.language.words import Words

MEANINGS = {
    "queued": "A job that waits: it is in the queue and has not started.",
    "held": "A held job stays in the queue and does not start until it is released.",
    "running": "A running job has been started and has not ended.",
    "done": "A job is done when its command ended with status 0.",
    "rejected": "The job ran to its end, but its result did not pass its own check.",
    "failed": "A job failed when its command ended with an error, a signal or a timeout.",
    "cancelled": "A person cancelled the job before it was done.",
    "lost": "A job is lost when nobody knows how it ended, as after a power cut.",
    "drain": "A drained GPU gets no new jobs; those that run on it continue.",
    "reservation": "A reservation is memory on a GPU that a job keeps for itself, so that jobs can "
    "share the GPU.",
    "lease": "The assistant's lease is its permission to use an idle GPU; a job takes it back.",
    "throttle": "A throttled GPU lowers its clocks, because of heat, its power limit or a fault.",
    "health": "ECC counts errors in the GPU's memory: corrected ones do no harm, uncorrected ones "
    "end the job.",
    "xid": "An Xid is an error that the NVIDIA driver reports; its number says what happened.",
    "util": "Utilisation is the share of time in which a kernel ran, not how much of the GPU it "
    "used.",
    "tflops": "TFLOP/s is how many million million floating-point operations a GPU does a second.",
    "idle": "A GPU is idle when no job holds it and nothing has used it for some seconds.",
    "priority": "Jobs with a higher priority start earlier.",
    "clock_sm": "The SM clock is the frequency of the GPU's streaming multiprocessors, its compute "
    "units.",
    "power_limit": "The power limit is the most power that a GPU may draw; its maker's value is "
    "called TDP.",
    "pause": "While the queue or a group is paused, none of its jobs starts; those that run "
    "continue.",
    "cancel": "To cancel a job is to end it, or to take it from the queue; it is then not run.",
    "group": "A group is a set of jobs that can be paused, and limited in how many run at once.",
    "eta": "The ETA is when a job is expected to end, from the progress that it reports or "
    "from earlier runs of its name.",
    "slot": "A CPU slot is a place for one job that uses no GPU. A job waits for a slot "
    "while as many such jobs run as may run at once.",
}
"""The sentence for each term."""
_ALSO = {
    "ecc": "health", "sm clock": "clock_sm", "clock": "clock_sm", "utilization": "util",
    "utilisation": "util", "auslastung": "util", "utilizacion": "util",
    "tdp": "power_limit", "tgp": "power_limit",
    "reservations": "reservation", "reservierung": "reservation", "reserva": "reservation",
    "eviction": "lease", "gruppe": "group", "groupe": "group", "grupo": "group",
    "gesperrt": "drain",
    "tflop/s": "tflops", "teraflops": "tflops", "throttling": "throttle", "throttled": "throttle",
    "gedrosselt": "throttle", "drosselung": "throttle", "bridage": "throttle",
    "xids": "xid", "drained": "drain", "hold": "held", "on hold": "held", "prioritat": "priority",
    "priorite": "priority", "prioridad": "priority",
}  # fmt: skip


def term_of(letters: str) -> str:
    """Return the term that the letters of a request name, or an empty text."""
    low = " ".join(letters.casefold().split())
    named = low.replace(" ", "_")
    return named if named in MEANINGS else _ALSO.get(low, "")


def meaning(term: str, words: Words) -> str:
    """Return what a term means."""
    return words.text(MEANINGS[term])
