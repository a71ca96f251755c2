"""One job in words: a sentence or two, and a table of the rest."""

from __future__ import annotations

from assistant.writing.template.book import Book
from assistant.writing.template.words import given, paragraph, sentence, table

_REST = (
    ("Inputs", "inputs"),
    ("Measured on", "device"),
    ("Why this backend", "choice"),
    ("Sustained rate", "sustained"),
    ("Memory bandwidth", "bandwidth"),
    ("Result", "result"),
    ("Energy", "used.energy"),
    ("Most memory on a device", "used.memory"),
    ("Mean utilisation of its devices", "used.util"),
)
"""What the table tells: title, and the name of the fact."""


def title(job: str) -> str:
    """Job 7"""
    return f"Job {job.removeprefix('job')}"


def called(book: Book, job: str) -> str:
    """Job 7 (attention)"""
    return title(job) + given(" ({})", book.said(f"{job}.name"))


def chapter(book: Book, job: str) -> list[str]:
    """Heading, account and table of one job."""
    return [
        f"### {title(job)}{given(': {}', book.said(f'{job}.name'))}",
        account(book, job, "it"),
        _details(book, job),
    ]


def account(book: Book, job: str, who: str) -> str:
    """How it stands or how it went; `who` is what the first sentence calls it."""
    measured = measurement(book, job)
    if passed(book, job):
        how = sentence(who, " passed", given(": {}", measured))
    else:
        how = paragraph(standing(book, job, who), sentence(given("it measured {}", measured)))
    return paragraph(how, _ran(book, job))


def passed(book: Book, job: str) -> bool:
    """Whether the job is done and its Result says pass."""
    return book.said(f"{job}.state") == "done" and book.said(f"{job}.verdict") == "pass"


def standing(book: Book, job: str, who: str) -> str:
    """How it stands: `Job 6 failed: it exited with status 3.`"""
    said = book.about(job)
    match said("state"):
        case "queued":
            return sentence(
                who,
                " has been queued",
                given(" for {}", said("waiting")),
                given(": {}", said("reason")),
            )
        case "running":
            return _running(book, job, who)
        case "failed":
            return paragraph(
                sentence(who, " failed", given(": {}", said("reason"))),
                sentence(given("its verdict is {}", said("verdict"))),
            )
        case "lost":
            return sentence(who, " was lost", given(": {}", said("reason")))
        case "cancelled":
            return sentence(who, " was cancelled")
        case str(state):  # done, starting, stopping
            return sentence(who, f" is {state}", given(", with the verdict {}", said("verdict")))
        case None:
            return sentence(who, " is in a state nobody told")


def _running(book: Book, job: str, who: str) -> str:
    said = book.about(job)
    since = given(" for {}", said("running")) + given(" on {}", said("devices"))
    through = given(", and is {} through", said("progress")) + given(" ({})", said("doing"))
    return paragraph(
        sentence(who, " has been running", since, through),
        sentence(given("it has about {} left", said("left"))),
    )


def speed(book: Book, job: str) -> str:
    """611 TFLOP/s with backend cudnn"""
    rate = book.said(f"{job}.tflops") or book.said(f"{job}.bandwidth")
    return " ".join(filter(None, (rate, given("with backend {}", book.said(f"{job}.backend")))))


def measurement(book: Book, job: str) -> str:
    """611 TFLOP/s with backend cudnn, median 3.60 ms (P95 3.71 ms, P99 3.91 ms) over 9713 calls"""
    said = book.about(job)
    tail = ", ".join(filter(None, (given("P95 {}", said("p95")), given("P99 {}", said("p99")))))
    median = given("median {}", said("median"))
    calls = given(" over {} calls", said("calls"))
    return ", ".join(
        filter(None, (speed(book, job), median and median + given(" ({})", tail) + calls))
    )


def _ran(book: Book, job: str) -> str:
    """It ran for 44 s on GPU 0, and ended at 09:14:30."""
    said = book.about(job)
    if duration := said("duration"):
        return sentence(
            "it ran for ",
            duration,
            given(" on {}", said("devices")),
            given(", and ended {}", said("ended")),
        )
    return sentence(given("it ended {}", said("ended")))


def _details(book: Book, job: str) -> str:
    said = book.about(job)
    rows = [
        (name, words)
        for name, what in _REST
        if (words := said(what) or given("N/A: {}", book.missing(f"{job}.{what}")))
    ]
    if (why := book.missing(f"{job}.median")) is not None:
        rows.append(("Time of one call", f"N/A: {why}"))
    rows += [("Check", words) for words in book.starting(f"{job}.check")]
    rows += [("Versions", words) for words in (said("versions"),) if words]
    return table(("Detail", "Value"), rows)
