"""Measure whether the manual's search finds the page, and the section, that answers a question.

    python -m tests.benchmarks.manual_search

Two sets are asked: `tests/unit/assistant/data/manual_questions.tsv`, and those of people from
whose profiles nothing learns (`assistant/training/data/sections.tsv`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.reader.reading import shipped_reader  # noqa: E402
from gpudeck.assistant.retrieval.ranking import find  # noqa: E402
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
            yield "held-out people", Question(one.language, one.text, ((page, heading),))


def main() -> None:
    """Write a row for each set and language, and one for all languages of a set."""
    reader = shipped_reader()
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, one in sets():
        found = [section for section, _ in find(one.text, reader)[:3]]
        said = ["questions", *["page"] * one.names_page_of(found[0])]
        said += ["section"] * one.is_answered_by(found[0])
        said += ["page in three"] * any(map(one.names_page_of, found))
        said += ["section in three"] * any(map(one.is_answered_by, found))
        for language in (one.language, "all"):
            counts[name, language].update(said)
        if not one.is_answered_by(found[0]):
            print(f"{one.text}: {found[0].place}, not {one.answers}")
    about = context("CPU", ("numpy", "tokenizers"))
    rows = [
        {"set": name, "language": language, "questions": of["questions"],
         **{what: f"{of[what] / of['questions']:.3f}"
            for what in ("page", "section", "page in three", "section in three")}}
        for (name, language), of in sorted(counts.items())
    ]  # fmt: skip
    for row in rows:
        print(row)
    write("manual_search", [row | about for row in rows])


if __name__ == "__main__":
    main()
