"""The brief: what happened in a paragraph, then each job, then the devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice

from assistant.writing.template import devices, jobs
from assistant.writing.template.book import Book
from assistant.writing.template.words import are, given, listed, paragraph, sentence

_TOLD = 12
"""Jobs that get a chapter of their own."""
_FEW = 3
"""So many jobs get one each, whatever there is to tell of them."""
_LINED = 40
"""Jobs, or runs of one name, that a paragraph of others names."""
_NAMED = 3
"""Jobs of one kind that the opening names."""


def brief(book: Book) -> list[str]:
    """All of it, part by part."""
    known = book.jobs()
    told = [job for job in known if len(known) <= _FEW or _notable(book, job)][:_TOLD]
    chapters = [part for job in told for part in jobs.chapter(book, job)]
    rest = others(book, [job for job in known if job not in told])
    heading = ["### Other jobs"] if rest and told else []
    return [
        "## What happened",
        opening(book),
        *_notices(book),
        *chapters,
        *heading,
        *rest,
        *devices.chapter(book),
    ]


def others(book: Book, left: Sequence[str]) -> list[str]:
    """Jobs of which there is little to tell, a paragraph for each state: what waits with its reason, the runs of one name together."""
    parts = []
    for state, group in groupby(left, lambda job: book.said(f"{job}.state") or ""):
        runs: dict[tuple[str, str], list[str]] = {}
        for job in group:
            runs.setdefault(
                (book.said(f"{job}.name") or "", book.said(f"{job}.reason") or ""), []
            ).append(job)
        told = "; ".join(
            _runs(book, same, name, reason) for (name, reason), same in islice(runs.items(), _LINED)
        )
        more = (
            "There are more than are told here; `gpudeck jobs` lists all of them."
            if len(runs) > _LINED
            else ""
        )
        parts.append(paragraph(sentence(f"**Jobs {state}:** {told}"), more))
    return parts


def _runs(book: Book, same: Sequence[str], name: str, reason: str) -> str:
    """job 8 (train), 2.5 s; jobs 3 to 7 (sweep)"""
    first, *more = reversed(same)
    if not more:
        took = given(", {}", book.said(f"{first}.duration"))
        return f"job {first.removeprefix('job')}{given(' ({})', name)}{took}{given(': {}', reason)}"
    numbers = [job.removeprefix("job") for job in (first, *more)]
    whole = int(numbers[-1]) - int(numbers[0]) == len(more)
    which = (
        f"{numbers[0]} to {numbers[-1]}" if whole and len(more) > 1 else listed(numbers[:_LINED])
    )
    return f"jobs {which}{given(' ({})', name)}{given(': {}', reason)}"


def _notable(book: Book, job: str) -> bool:
    """Whether it runs, went wrong or was measured."""
    return (
        book.said(f"{job}.state") not in ("queued", "done", "cancelled")
        or book.said(f"{job}.verdict") is not None
    )


def opening(book: Book) -> str:
    """What happened, in a few plain sentences."""
    return paragraph(
        _ran(book), _went_wrong(book), _best(book), _running(book), _waiting(book), _use(book)
    )


def _notices(book: Book) -> list[str]:
    return [f"**Notice:** {words}" for words in book.starting("deck.notice")]


def _ran(book: Book) -> str:
    """On 21 November 2026 from 09:13 to 09:23, 3 jobs ran, of which 1 failed."""
    said = book.about("jobs")
    when = given("{}, ", book.said("span.when"))
    if not (ran := said("ran")):
        return sentence(when, "no job ran to its end")
    wrong = [given("{} failed", said("failed")), given("{} got lost", said("lost"))]
    return sentence(
        when,
        _jobs(ran),
        " ran",
        given(", of which {}", listed([words for words in wrong if words])),
    )


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
        jobs.called(book, job),
        " passed",
        what,
        reached,
        given(" on {}", said("device")),
        given(", and took {}", said("duration")),
    )


def _running(book: Book) -> str:
    return paragraph(
        *(_standing(book, job) for job in book.jobs("running", "starting", "stopping")[:_NAMED])
    )


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
    return paragraph(
        *(
            sentence(listed(who), f" {are(who)} {state} now")
            for who, state in ((idle, "idle"), (busy, "busy"))
            if who
        )
    )
