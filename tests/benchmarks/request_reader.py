"""Measure the reader of requests on the profiles that were held out.

    python -m tests.benchmarks.request_reader

`head` is the share of requests whose kind is read right, `top 3` of those whose kind is among the
first three. The rest is for requests that open a conversation, as the program decides them: `right`
and `wrong` answers and cards, `offered` choices with the right one, and `asked` for all else.
"""

from __future__ import annotations

import gzip
import json
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.intents.router import Routed, route, shipped_router  # noqa: E402
from gpudeck.assistant.intents.spots import Known  # noqa: E402
from gpudeck.assistant.intents.state import State  # noqa: E402
from gpudeck.assistant.intents.vote import head_of  # noqa: E402
from gpudeck.assistant.reader.labels import described  # noqa: E402
from gpudeck.assistant.reader.labels import head_of as label_head  # noqa: E402
from gpudeck.assistant.reader.reading import shipped_reader  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

DATA = Path(__file__).parents[2] / "assistant" / "training" / "data" / "requests.jsonl.gz"
HELD_OUT = (3, 9, 12, 19, 25, 33)
NOTHING, NOBODY = State(), Known((), ())


def decided(found: Routed, wanted: str) -> str:
    """Return what a decision is worth."""
    if found.choices:
        return "offered" if wanted in map(head_of, found.choices) else "asked"
    if found.refusal:
        return "right" if found.refusal == wanted else "asked"
    if found.parsed.refusal is not None or found.request is None:
        return "asked"
    return "right" if head_of(found.request) == wanted else "wrong"


def main() -> None:
    """Write a row for each language and one for all."""
    reader, router = shipped_reader(), shipped_router()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spent: list[float] = []
    before: dict[str, Any] | None = None
    for line in gzip.decompress(DATA.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if row["profile"] not in HELD_OUT:
            continue
        before = None if row["turn"] == 1 else before
        wanted, began = label_head(row["label"][0]), time.process_time()
        found = reader.read(row["text"], described(before))
        spent.append(time.process_time() - began)
        said = ["requests", *["head"] * (found.head == wanted)]
        said += ["top 3"] * (wanted in [head for head, _ in found.heads])
        if row["turn"] == 1:
            routed = route(row["text"], NOBODY, NOTHING, time.time(), router, reader)
            said += ["first", decided(routed, wanted)]
        for language in (row["language"], "all"):
            counts[language].update(said)
        before = before if "talk" in row["label"][-1] else row["label"][-1]
    rows = []
    for language, found_ in sorted(counts.items()):
        shares = {name: f"{found_[name] / found_['requests']:.3f}" for name in ("head", "top 3")}
        firsts = {name: f"{found_[name] / found_['first']:.3f}"
                  for name in ("right", "offered", "asked", "wrong")}  # fmt: skip
        rows.append({"language": language, "requests": found_["requests"], **shares,
                     "first requests": found_["first"], **firsts})  # fmt: skip
    slow = sorted(spent)[int(len(spent) * 0.95)]
    print(
        f"CPU time of a reading: {1e3 * statistics.median(spent):.0f} ms, P95 {1e3 * slow:.0f} ms"
    )
    for one in rows:
        print(one)
    about = context("CPU", ("numpy", "tokenizers"))
    write("request_reader", [one | about for one in rows])


if __name__ == "__main__":
    main()
