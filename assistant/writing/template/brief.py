"""Write the brief: what happened in a paragraph, then each job, then the devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice

from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.writing.template import devices, jobs
from gpudeck.assistant.writing.template.sentences import are, given, listed, paragraph, sentence

_TOLD = 12
"""The most jobs that get a chapter of their own."""
_FEW = 3
"""Up to this number of jobs, each gets a chapter, notable or not."""
_LINED = 40
"""The most jobs, or runs of one name, in a paragraph of other jobs."""
_NAMED = 3
"""The most jobs of one kind that the opening names."""


def brief(index: FactIndex) -> list[str]:
    """Return the whole brief, part by part."""
    known = index.jobs()
    described = [job for job in known if len(known) <= _FEW or _notable(index, job)][:_TOLD]
    chapters = [part for job in described for part in jobs.chapter(index, job)]
    rest = others(index, [job for job in known if job not in described])
    heading = ["### Other jobs"] if rest and described else []
    return [
        "## What happened",
        opening(index),
        *_notices(index),
        *chapters,
        *heading,
        *rest,
        *devices.chapter(index),
    ]


def without_devices(text: str) -> str:
    """Return a brief without its chapter on devices, whose table a report has anyway.

    What follows the chapter about the text itself is kept.
    """
    kept, chapter, rest = text.partition("\n\n### Devices\n\n")
    why = [part for part in rest.split("\n\n") if part.startswith("Written from the template")]
    return "\n\n".join([kept, *why]) if chapter else text


def others(index: FactIndex, left: Sequence[str]) -> list[str]:
    """Return a paragraph for each state of jobs without a chapter.

    Waiting jobs are given with their reasons; runs of one name are grouped.
    """
    parts = []
    for state, group in groupby(left, lambda job: index.text(f"{job}.state") or ""):
        runs: dict[tuple[str, str], list[str]] = {}
        for job in group:
            runs.setdefault(
                (index.text(f"{job}.name") or "", index.text(f"{job}.reason") or ""), []
            ).append(job)
        text = "; ".join(
            _runs(index, same, name, reason)
            for (name, reason), same in islice(runs.items(), _LINED)
        )
        more = "There are more; `gpudeck jobs` lists all of them." if len(runs) > _LINED else ""
        parts.append(paragraph(sentence(f"**Jobs {state}:** {text}"), more))
    return parts


def _runs(index: FactIndex, same: Sequence[str], name: str, reason: str) -> str:
    """Return `job 8 (train), 2.5 s` or `jobs 3 to 7 (sweep)`."""
    first, *more = reversed(same)
    if not more:
        took = given(", {}", index.text(f"{first}.duration"))
        return f"job {first.removeprefix('job')}{given(' ({})', name)}{took}{given(': {}', reason)}"
    numbers = [job.removeprefix("job") for job in (first, *more)]
    whole = int(numbers[-1]) - int(numbers[0]) == len(more)
    which = (
        f"{numbers[0]} to {numbers[-1]}" if whole and len(more) > 1 else listed(numbers[:_LINED])
    )
    return f"jobs {which}{given(' ({})', name)}{given(': {}', reason)}"


def _notable(index: FactIndex, job: str) -> bool:
    """Return True if a job runs, went wrong or was measured."""
    return (
        index.text(f"{job}.state") not in ("queued", "done", "cancelled")
        or index.text(f"{job}.verdict") is not None
    )


def opening(index: FactIndex) -> str:
    """Return what happened, in a few plain sentences."""
    return paragraph(
        _ran(index), _went_wrong(index), _best(index), _running(index), _waiting(index), _use(index)
    )


def _notices(index: FactIndex) -> list[str]:
    return [f"**Notice:** {words}" for words in index.texts("deck.notice")]


def _ran(index: FactIndex) -> str:
    """Return `On 21 November 2026 from 09:13 to 09:23, 3 jobs ran, of which 1 failed.`"""
    fact = index.of("jobs")
    when = given("{}, ", index.text("span.when"))
    if not (ran := fact("ran")):
        return sentence(when, "no job ran to its end")
    wrong = [given("{} failed", fact("failed")), given("{} got lost", fact("lost"))]
    return sentence(
        when,
        _jobs(ran),
        " ran",
        given(", of which {}", listed([words for words in wrong if words])),
    )


def _jobs(count: str) -> str:
    return f"{count} {'job' if count == '1' else 'jobs'}"


def _went_wrong(index: FactIndex) -> str:
    return paragraph(*(_standing(index, job) for job in index.jobs("failed", "lost")[:_NAMED]))


def _best(index: FactIndex) -> str:
    """Return a sentence on the newest job that was measured and passed."""
    job = next((job for job in index.jobs("done") if jobs.passed(index, job)), None)
    if job is None:
        return ""
    fact = index.of(job)
    what = given(": its {} workload", fact("workload")) or ": it"
    reached = given(" reached {}", jobs.speed(index, job)) or " ran"
    return sentence(
        jobs.called(index, job),
        " passed",
        what,
        reached,
        given(" on {}", fact("device")),
        given(", and took {}", fact("duration")),
    )


def _running(index: FactIndex) -> str:
    return paragraph(
        *(_standing(index, job) for job in index.jobs("running", "starting", "stopping")[:_NAMED])
    )


def _waiting(index: FactIndex) -> str:
    """Return how many jobs wait, and what the oldest of them waits for."""
    waiting, count = index.jobs("queued"), index.text("jobs.queued")
    several = sentence(_jobs(count), " are queued") if count and len(waiting) > 1 else ""
    paused = "The queue is paused: nothing new starts." if index.text("deck.paused") else ""
    return paragraph(several, *(_standing(index, job) for job in waiting[-1:]), paused)


def _standing(index: FactIndex, job: str) -> str:
    return jobs.standing(index, job, jobs.called(index, job))


def _is_used(index: FactIndex, device: str) -> bool:
    loaded = (index.number(f"{device}.util") or 0.0) > 0.0
    return not index.is_idle(device) and (loaded or index.has(f"{device}.holder"))


def _use(index: FactIndex) -> str:
    """Return which devices are idle now, and which ones a job holds or programs use.

    Nothing is said of others, such as those that are asleep, booked, or free in a moment.
    """
    found = [device for device in index.devices() if index.has(f"{device}.use")]
    if len(found) == 1:
        return sentence(devices.called(index, found[0]), " ", devices.use(index, found[0]))
    idle = [devices.called(index, device) for device in found if index.is_idle(device)]
    busy = [devices.called(index, device) for device in found if _is_used(index, device)]
    return paragraph(
        *(
            sentence(listed(who), f" {are(who)} {state} now")
            for who, state in ((idle, "idle"), (busy, "busy"))
            if who
        )
    )
