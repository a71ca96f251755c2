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
    "vram": "VRAM is the memory on the graphics card. Programs on the GPU cannot use more than it "
    "has; the machine's own memory (RAM) does not count.",
    "gpu": "A GPU is the processor of a graphics card; here, both words mean the same.",
    "gpu_hour": "A GPU-hour is one GPU held by a job for one hour.",
    "power": "The power is what a GPU draws now, in watts.",
    "nvlink": "NVLink is a fast connection between GPUs of one machine.",
    "pstate": "A performance state (P-state) says how fast a GPU may run: P0 is the fastest, P8 "
    "and above are for a GPU that rests.",
    "tensor_core": "Tensor cores are units of a GPU that multiply matrices, in FP16, BF16 or FP8 "
    "many times faster than its other units.",
    "kernel": "A kernel is a program that runs on the GPU, such as one matrix product.",
    "job": "A job is a command in the queue, with what it asks for, such as GPUs, memory or a "
    "time limit.",
    "process": "A process is a program that runs on this machine. A job has one or more; a "
    "process may also run outside of the queue.",
    "job_queue": "The queue is the list of jobs that wait. Each starts when it is its turn and "
    "the GPUs that it asks for are free.",
    "array": "An array is many jobs from one submission, which differ only in their index.",
    "dependency": "A dependency is a job for whose end another job waits.",
    "preemptible": "A preemptible job may be suspended for a more urgent one or for a booking; it "
    "continues later from where it was.",
    "suspended": "A suspended job has left its GPU with everything that it had in memory, and "
    "continues from there when it is resumed.",
    "checkpoint": "A checkpoint is a file in which a training keeps its state, so that it can "
    "continue from there after a stop.",
    "token": "A token is a piece of text, often a short word or a part of one, that a language "
    "model reads or writes at once.",
    "parameters": "7B means seven thousand million parameters: the numbers that a model has "
    "learnt. Q4 means that each takes about four bits.",
    "kv_cache": "The KV cache holds what a language model has computed of the text so far; it "
    "grows with the length of the text.",
    "speculative": "In speculative decoding, a small model proposes several tokens and the large "
    "model checks them at once; the text is the same, and comes faster.",
    "flash_attention": "Flash attention computes exact attention without writing the large matrix "
    "of scores to memory, which makes it faster and lets texts be longer.",
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
    "job array": "array", "tensor cores": "tensor_core", "kv cache": "kv_cache",
    "speculative decoding": "speculative", "flash attention": "flash_attention",
}  # fmt: skip


def term_of(letters: str) -> str:
    """Return the term that the letters of a request name, or an empty text."""
    low = " ".join(letters.casefold().split())
    named = low.replace(" ", "_")
    return named if named in MEANINGS else _ALSO.get(low, "")


def meaning(term: str, words: Words) -> str:
    """Return what a term means."""
    return words.text(MEANINGS[term])
