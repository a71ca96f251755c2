"""Measure whether the manual's search finds the page, and the section, that answers a question.

    python -m tests.benchmarks.manual_search

Two sets are asked: `tests/unit/assistant/data/manual_questions.tsv`, and those of people from
whose profiles nothing learns (`assistant/training/data/sections.tsv`), with what they had asked
before. What is quoted has one section, or two where the first is not sure; its length is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.tools.quotes import answering  # noqa: E402
from gpudeck.assistant.training.requests import is_held_out  # noqa: E402
from gpudeck.assistant.training.sections import asked_questions  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402
from tests.unit.assistant.manual_questions import Question, questions  # noqa: E402


def sets() -> Iterator[tuple[str, Question]]:
    """Yield the questions with their sets."""
    yield from (("known", one) for one in questions())
    for one in asked_questions():
        if is_held_out(one.profile):
            page, _, heading = one.place.partition("#")
            answers = ((page, heading),)
            yield "held-out people", Question(one.language, one.text, answers, one.before)


def main() -> None:
    """Write a row for each set and language, and one for all languages of a set."""
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, one in sets():
        answer = answering(one.text, one.before)
        found = (*answer.quoted, *answer.named)  # nothing, where none is near
        quoted = answer.passages()
        right: dict[str, int] = {
            "questions": 1,
            "page": any(map(one.names_page_of, found[:1])),
            "section": any(map(one.is_answered_by, found[:1])),
            "page in three": any(map(one.names_page_of, found)),
            "section in three": any(map(one.is_answered_by, found)),
            "section quoted": any(map(one.is_answered_by, answer.quoted)),
            "two quoted": len(quoted) == 2,
            "characters": sum(len(passage.text) for passage in quoted),
        }
        for language in (one.language, "all"):
            counts[name, language].update(right)
        if not right["section"]:
            print(f"{one.text}: {[section.place for section in found]}, not {one.answers}")
    about = context("CPU", ("numpy", "tokenizers"))
    rows = [
        {"set": name, "language": language, "questions": of["questions"],
         **{what: f"{of[what] / of['questions']:.3f}"
            for what in ("page", "section", "page in three", "section in three",
                         "section quoted", "two quoted")},
         "characters": round(of["characters"] / of["questions"])}
        for (name, language), of in sorted(counts.items())
    ]  # fmt: skip
    for row in rows:
        print(row)
    write("manual_search", [row | about for row in rows])


if __name__ == "__main__":
    main()
