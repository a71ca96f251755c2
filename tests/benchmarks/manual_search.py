"""Measure whether the manual's search finds the page, and the section, that answers a question.

    python -m tests.benchmarks.manual_search

The questions are `tests/unit/assistant/data/manual_questions.tsv`.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.reader.labels import PAGES  # noqa: E402
from gpudeck.assistant.reader.reading import shipped_reader  # noqa: E402
from gpudeck.assistant.retrieval.sections import find  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402
from tests.unit.assistant.manual_questions import questions  # noqa: E402


def main() -> None:
    """Write a row for each language and one for all."""
    reader = shipped_reader()
    vector = reader.encoder.vector
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in questions():
        pages = dict(zip(PAGES, reader.read(one.text).pages, strict=True))
        found = [
            section for section, _ in find(one.text, vector(f"query: {one.text}"), pages, vector)
        ]
        said = ["questions", *["page"] * one.names_page_of(found[0])]
        said += ["section"] * one.is_answered_by(found[0])
        said += ["page in three"] * any(map(one.names_page_of, found[:3]))
        for language in (one.language, "all"):
            counts[language].update(said)
        if not one.names_page_of(found[0]):
            print(f"{one.text}: {found[0].page}, {found[0].heading}")
    about = context("CPU", ("numpy", "tokenizers"))
    rows = [
        {"language": language, "questions": of["questions"],
         **{name: f"{of[name] / of['questions']:.3f}"
            for name in ("page", "section", "page in three")}}
        for language, of in sorted(counts.items())
    ]  # fmt: skip
    for row in rows:
        print(row)
    write("manual_search", [row | about for row in rows])


if __name__ == "__main__":
    main()
