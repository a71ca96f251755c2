"""Measure the reader of requests on the profiles that were held out.

    python -m tests.benchmarks.request_reader

`head` is the share of requests whose kind is read right, `top 3` of those whose kind is among the
first three; `marks` and `spans` of those whose measures and other marks, and whose letters of
times, numbers and names are all found and no others. `sure` is the share that is read with a
probability above 0.8, and `sure right` the part of it that is right.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.reader.reading import shipped_reader  # noqa: E402
from gpudeck.assistant.training.requests import HELD_OUT, examples  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

DATA = Path(__file__).parents[2] / "assistant" / "training" / "data" / "requests.jsonl.gz"
SURE = 0.8
COLUMNS = ("head", "top 3", "marks", "spans", "sure")


def main() -> None:
    """Write a row for each language of each set, and one for the whole set."""
    reader = shipped_reader()
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    spent: list[float] = []
    sets = {profile: name for name, profiles in HELD_OUT.items() for profile in profiles}
    for one in examples(DATA):
        if one.profile not in sets:
            continue
        began = time.process_time()
        found = reader.read(one.text, one.before)
        spent.append(time.process_time() - began)
        wanted = {(field, one.text[first:last].lower()) for field, first, last in one.spans}
        right = found.head == one.heads[0]
        said = {
            "requests": True, "head": right, "sure": found.chance > SURE,
            "sure right": right and found.chance > SURE,
            "top 3": one.heads[0] in [head for head, _ in found.heads],
            "marks": found.marks == {*one.marks},
            "spans": {(field, letters.lower()) for field, letters in found.spans} == wanted,
        }  # fmt: skip
        for language in (one.language, "all"):
            counts[sets[one.profile], language].update(
                name for name, is_so in said.items() if is_so
            )
    slow = sorted(spent)[int(len(spent) * 0.95)]
    cost = {"ms": f"{1e3 * statistics.median(spent):.0f}", "ms P95": f"{1e3 * slow:.0f}"}
    about = context("CPU", ("numpy", "tokenizers"))
    rows = [
        {"set": name, "language": language, "requests": of["requests"],
         **{column: f"{of[column] / of['requests']:.3f}" for column in COLUMNS},
         "sure right": f"{of['sure right'] / max(of['sure'], 1):.3f}", **cost}
        for (name, language), of in sorted(counts.items())
    ]  # fmt: skip
    for row in rows:
        print(row)
    write("request_reader", [row | about for row in rows])


if __name__ == "__main__":
    main()
