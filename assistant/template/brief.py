"""The brief: what happened in a paragraph, then each job, then the devices."""

from __future__ import annotations

from assistant.template import devices, jobs
from assistant.template.book import Book
from assistant.template.words import are, given, listed, paragraph, sentence

_TOLD = 12
"""Jobs that get a chapter of their own."""
_NAMED = 3
"""Jobs of one kind that the opening names."""


def brief(book: Book) -> list[str]:
    """All of it, part by part."""
    told = book.jobs()
    more = ["There are more jobs than are told here; `gpudeck jobs` lists all of them."] if len(told) > _TOLD else []
    chapters = [part for job in told[:_TOLD] for part in jobs.chapter(book, job)]
    return ["## What happened", opening(book), *_notices(book), *chapters, *more, *devices.chapter(book)]


def opening(book: Book) -> str:
    """What happened, in a few plain sentences."""
    return paragraph(_ran(book), _went_wrong(book), _best(book), _running(book), _waiting(book), _use(book))


def _notices(book: Book) -> list[str]:
    return [f"**Notice:** {words}" for words in book.starting("deck.notice")]


def _ran(book: Book) -> str:
    """On 21 November 2026 from 09:13 to 09:23, 3 jobs ran, of which 1 failed."""
    said = book.about("jobs")
    when = given("{}, ", book.said("span.when"))
    if not (ran := said("ran")):
        return sentence(when, "no job ran to its end")
    wrong = [given("{} failed", said("failed")), given("{} got lost", said("lost"))]
    return sentence(when, _jobs(ran), " ran", given(", of which {}", listed([words for words in wrong if words])))


def _jobs(count: str) -> str:
    return f"{count} {'job' if count == '1' else 'jobs'}"


def _went_wrong(book: Book) -> str:
    return paragraph(*(_standing(book, job) for job in book.jobs("failed", "lost")[:_NAMED]))


def _best(book: Book) -> str:
    """The one most worth knowing: the newest that was measured and passed."""
    job = next((job for job in book.jobs("done") if jobs.passed(book, job)), None)
    if job is None:
        return ""
    said = book.about(job)
    what = given(": its {} workload", said("workload")) or ": it"
    reached = given(" reached {}", jobs.speed(book, job)) or " ran"
    return sentence(
        jobs.called(book, job), " passed", what, reached, given(" on {}", said("device")), given(", and took {}", said("duration"))
    )


def _running(book: Book) -> str:
    return paragraph(*(_standing(book, job) for job in book.jobs("running", "starting", "stopping")[:_NAMED]))


def _waiting(book: Book) -> str:
    """How many wait, and what the oldest of them waits for."""
    waiting, count = book.jobs("queued"), book.said("jobs.queued")
    several = sentence(_jobs(count), " are queued") if count and len(waiting) > 1 else ""
    paused = "The queue is paused: nothing new starts." if book.said("deck.paused") else ""
    return paragraph(several, *(_standing(book, job) for job in waiting[-1:]), paused)


def _standing(book: Book, job: str) -> str:
    return jobs.standing(book, job, jobs.called(book, job))


def _use(book: Book) -> str:
    """Whether the devices are idle now."""
    found = book.devices()
    if len(found) == 1:
        return sentence(devices.called(book, found[0]), " ", devices.use(book, found[0]))
    idle = [devices.called(book, device) for device in found if devices.idle(book, device)]
    busy = [devices.called(book, device) for device in found if not devices.idle(book, device)]
    return paragraph(*(sentence(listed(who), f" {are(who)} {state} now") for who, state in ((idle, "idle"), (busy, "busy")) if who))
