"""Search the manual and the logs of jobs.

Passages are quoted word for word, with file and line, and never acted on.
"""

from __future__ import annotations

from msgspec.structs import replace

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.retrieval import bm25, job_logs, manual
from gpudeck.assistant.retrieval.passage import Passage, Where

__all__ = ["Passage", "Where", "quoted", "search", "section"]

MOST = 5
_LEAST = {"docs": 0.4, "logs": 0.3}
"""The share of the question, by weight, that a passage must contain."""
_LOG_WORDS = frozenset({"job", "log", "output", "print"})


def search(
    question: str, where: Where = "docs", job: int | None = None, least: float = _LEAST["docs"]
) -> tuple[Passage, ...]:
    """Return the best passages, at most MOST; none if nothing fits.

    Logs are searched for one job if it is given, otherwise for the newest jobs. A passage of the
    manual has at least the share `least` of the question, by weight.
    """
    return _in_manual(question, least) if where == "docs" else _in_logs(question, job)


def section(heading: str) -> tuple[Passage, ...]:
    """Return the passages of the manual under a heading, in order."""
    return tuple(passage for passage in manual.whole() if heading and passage.heading == heading)


def quoted(passages: tuple[Passage, ...], where: Where = "docs") -> str:
    """Return the passages as Markdown, each with its place, or that nothing was found."""
    if not passages:
        return f"Nothing about that was found in {'the manual' if where == 'docs' else 'the logs'}."
    return "\n\n".join(_quote(passage) for passage in passages)


def _quote(passage: Passage) -> str:
    under = f" ({passage.heading})" if passage.heading else ""
    if passage.where == "logs":
        return f"{phrases.fenced(passage.text)}\n\n{phrases.escaped(passage.cite + under, 400)}"
    lines = "\n".join(f"> {line}" for line in passage.text.split("\n"))
    return f"{lines}\n\n{phrases.escaped(passage.cite + under, 400)}"


def _in_manual(question: str, least: float) -> tuple[Passage, ...]:
    texts = [bm25.stems(f"{passage.heading} {passage.text}") for passage in manual.whole()]
    scored = zip(bm25.scores(bm25.terms(question), texts, least), manual.whole(), strict=True)
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])[:MOST]
    return tuple(replace(passage, score=round(score, 3)) for score, passage in best)


def _in_logs(question: str, job: int | None) -> tuple[Passage, ...]:
    wanted = bm25.terms(question, _LOG_WORDS | ({str(job)} if job is not None else set()))
    read = (
        [job_logs.read(job, job_logs.ONE_LOG)]
        if job is not None
        else [job_logs.read(n, job_logs.EACH_LOG) for n in job_logs.newest()]
    )
    places = [(log, i) for log in read for i, line in enumerate(log.lines) if line]
    scored = bm25.scores(wanted, [bm25.stems(log.lines[i]) for log, i in places], _LEAST["logs"])
    best = sorted(
        ((score, n) for n, score in enumerate(scored) if score),
        key=lambda pair: (-pair[0], -pair[1]),
    )
    found: list[Passage] = []
    shown: set[str] = set()
    for score, n in best:
        log, i = places[n]
        new = job_logs.passage(log, i, round(score, 3))
        if log.lines[i] not in shown and not any(_touches(new, other) for other in found):
            found.append(new)
            shown.add(log.lines[i])
        if len(found) == MOST:
            break
    return tuple(found)


def _touches(a: Passage, b: Passage) -> bool:
    """Return True if two passages quote some of the same lines."""
    if a.file != b.file:
        return False
    if not (a.last and b.last):
        return a.first == b.first
    return a.first <= b.last and b.first <= a.last
