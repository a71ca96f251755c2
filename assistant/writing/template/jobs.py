"""Describe one job: a sentence or two, and a table of details."""

from __future__ import annotations

from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.writing.template.sentences import given, paragraph, sentence, table

_REST = (
    ("Inputs", "inputs"),
    ("Measured on", "device"),
    ("Why this backend", "choice"),
    ("Sustained rate", "sustained"),
    ("Memory bandwidth", "bandwidth"),
    ("Result", "result"),
    ("Energy", "used.energy"),
    ("Peak memory on a device", "used.memory"),
    ("Avg utilisation of its devices", "used.util"),
)
"""The rows of the table: a title, and the name of the fact."""


def title(job: str) -> str:
    """Return the title of a job: Job 7."""
    return f"Job {job.removeprefix('job')}"


def called(index: FactIndex, job: str) -> str:
    """Return the title of a job with its name: Job 7 (attention)."""
    return title(job) + given(" ({})", index.text(f"{job}.name"))


def chapter(index: FactIndex, job: str) -> list[str]:
    """Return the heading, the account and the table of one job."""
    return [
        f"### {title(job)}{given(': {}', index.text(f'{job}.name'))}",
        account(index, job, "it"),
        _details(index, job),
    ]


def account(index: FactIndex, job: str, who: str) -> str:
    """Return how a job stands or how it went; `who` is its name in the first sentence."""
    measured = measurement(index, job)
    if passed(index, job):
        how = sentence(who, " passed", given(": {}", measured))
    else:
        how = paragraph(standing(index, job, who), sentence(given("it measured {}", measured)))
    return paragraph(how, _ran(index, job))


def passed(index: FactIndex, job: str) -> bool:
    """Return True if the job is done and its Result is a pass."""
    return index.text(f"{job}.state") == "done" and index.text(f"{job}.verdict") == "pass"


def standing(index: FactIndex, job: str, who: str) -> str:
    """Return the state of a job: `Job 6 failed: it exited with status 3.`"""
    fact = index.of(job)
    match fact("state"):
        case "queued":
            return sentence(
                who,
                " has been queued",
                given(" for {}", fact("waiting")),
                given(": {}", fact("reason")),
            )
        case "running":
            return _running(index, job, who)
        case "failed":
            return paragraph(
                sentence(who, " failed", given(": {}", fact("reason"))),
                sentence(given("its verdict is {}", fact("verdict"))),
            )
        case "lost":
            return sentence(who, " was lost", given(": {}", fact("reason")))
        case "cancelled":
            return sentence(who, " was cancelled")
        case str(state):  # done, starting, stopping
            return sentence(who, f" is {state}", given(", with the verdict {}", fact("verdict")))
        case None:
            return sentence(who, " is in an unknown state")


def _running(index: FactIndex, job: str, who: str) -> str:
    fact = index.of(job)
    since = given(" for {}", fact("running")) + given(" on {}", fact("devices"))
    through = given(", and is {} through", fact("progress")) + given(" ({})", fact("doing"))
    return paragraph(
        sentence(who, " has been running", since, through),
        sentence(given("it has about {} left", fact("left"))),
    )


def speed(index: FactIndex, job: str) -> str:
    """Return `611 TFLOP/s with backend cudnn`."""
    rate = index.text(f"{job}.tflops") or index.text(f"{job}.bandwidth")
    return " ".join(filter(None, (rate, given("with backend {}", index.text(f"{job}.backend")))))


def measurement(index: FactIndex, job: str) -> str:
    """Return the measurement: rate, backend, median with percentiles, and the number of calls.

    Example: 611 TFLOP/s with backend cudnn, median 3.60 ms (P95 3.71 ms, P99 3.91 ms) over 9713
    calls
    """
    fact = index.of(job)
    tail = ", ".join(filter(None, (given("P95 {}", fact("p95")), given("P99 {}", fact("p99")))))
    median = given("median {}", fact("median"))
    calls = given(" over {} calls", fact("calls"))
    return ", ".join(
        filter(None, (speed(index, job), median and median + given(" ({})", tail) + calls))
    )


def _ran(index: FactIndex, job: str) -> str:
    """Return `It ran for 44 s on GPU 0, and ended at 09:14:30.`"""
    fact = index.of(job)
    if duration := fact("duration"):
        return sentence(
            "it ran for ",
            duration,
            given(" on {}", fact("devices")),
            given(", and ended {}", fact("ended")),
        )
    return sentence(given("it ended {}", fact("ended")))


def _details(index: FactIndex, job: str) -> str:
    fact = index.of(job)
    rows = [
        (name, words)
        for name, what in _REST
        if (words := fact(what) or given("N/A: {}", index.why_absent(f"{job}.{what}")))
    ]
    if (why := index.why_absent(f"{job}.median")) is not None:
        rows.append(("Time of one call", f"N/A: {why}"))
    rows += [("Check", words) for words in index.texts(f"{job}.check")]
    rows += [("Versions", words) for words in (fact("versions"),) if words]
    return table(("Detail", "Value"), rows)
