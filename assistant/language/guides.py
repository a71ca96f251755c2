"""Say how things are done that no order does, in a sentence or two each."""

from __future__ import annotations

from gpudeck.language.words import Words

GUIDES = {
    "after": "A job waits for others when it is submitted so: `gpudeck submit --after 7 -- python "
    "eval.py`. It starts after job 7 has succeeded; with `--after-any`, also if that one fails.",
    "export": "`gpudeck export --since 2h --out history.csv` writes the history of the devices as "
    "CSV, and `gpudeck usage --out usage.csv` what jobs used, by user and month. The list of jobs "
    "is written as JSON, not as CSV: `gpudeck jobs --json`.",
    "history": "The history is kept for thirty days: in steps of ten seconds for a day, of a "
    "minute for seven days, and of ten minutes after that.",
    "quiet": "The setting idle_hours_off says when the assistant must not use a GPU, such as "
    "09:00-18:00; it is on the page Settings. It may still write on the CPU.",
    "notify": "When a job ends that ran for at least the setting notify_minutes, the "
    "desktop shows a notification. The setting on_job_end runs a command whenever a job ends. "
    "The setting webhook sends alerts to an address.",
    "results": "The page Jobs shows the log, the result and the report of each job. In a "
    "terminal: `gpudeck logs 7` and `gpudeck results 7`.",
    "fans": "GPU Deck reads fans, clocks and power limits, and does not set them: the "
    "driver does, for example by `nvidia-smi -pl 300`.",
    "hold_running": "Only a job that waits can be held. A job that runs can be cancelled "
    "and retried later; pausing the queue keeps new jobs from starting and lets it go on.",
    "pause_effect": "Jobs that run go on while the queue is paused. Only no new job "
    "starts until the queue is resumed.",
    "language": "I read and answer requests in English, German, French and Spanish, in the "
    "language of the request. The window is in one of them, too: in the desktop's language, or "
    "that of the setting language. The command line and the manual are in English.",
    "array": "`gpudeck submit --array 0-9 -- python sweep.py` submits ten jobs as one array. Each "
    "finds its index in GPUDECK_ARRAY_INDEX; with `--group sweep` they can be limited together.",
    "reserve": "`gpudeck reserve 3 --until +2h` keeps a GPU free of jobs; with `--from` and "
    "`--group` it is kept for a group at a later time. In the window: Jobs, Bookings.",
    "charts": "The Dashboard shows the charts of all GPUs; a click on a GPU opens its page with "
    "the history of each value. The wheel zooms, and dragging moves the time.",
    "revive": "No: a job that was cancelled or has ended cannot be released. `gpudeck ask "
    '"retry job 7"` runs it again as a new job.',
    "slot": "A CPU slot is a place for one job that uses no GPU. A job waits for a slot "
    "while as many such jobs run as may run at once.",
}
"""The text of each guide; commands are in back quotes."""


def guide(name: str, words: Words) -> str:
    """Return the text of a guide."""
    return words.text(GUIDES[name])
