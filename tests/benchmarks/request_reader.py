"""Measure the reader of requests on the profiles that were held out.

    python -m tests.benchmarks.request_reader

`head` is the share of requests whose kind is read right, `top 3` of those whose kind is among the
first three. The rest is for requests that open a conversation, as the program decides them: `right`
and `wrong` kinds of answers and cards, `offered` choices with the right kind, and `asked` for all
else; by both readers, and by the rules and the router alone.
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


_REFUSALS = {"notify": "order notify", "negated": "talk no", "cannot": "talk outside",
             "unclear": "talk unclear"}  # fmt: skip


def decided(found: Routed, label: dict[str, Any]) -> str:
    """Return what a decision is worth."""
    wanted = label_head(label)
    if found.choices:
        return "offered" if wanted in map(head_of, found.choices) else "asked"
    refused = found.parsed.refusal
    if found.refusal or refused is not None:
        conditional = {"if", "at"} & label.keys() and wanted.startswith("order")
        fits = _REFUSALS.get(found.refusal, found.refusal) == wanted
        return "right" if fits or conditional else "asked"
    if found.request is None:
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
            said.append("first")
            for name, asked in (("both", reader), ("first reader", None)):
                routed = route(row["text"], NOBODY, NOTHING, time.time(), router, asked)
                said.append(f"{name} {decided(routed, row['label'][0])}")
        for language in (row["language"], "all"):
            counts[language].update(said)
        before = before if "talk" in row["label"][-1] else row["label"][-1]
    rows = [
        {"language": language, "requests": of["requests"], "read by": name,
         "head": f"{of['head'] / of['requests']:.3f}" if name == "both" else "",
         "top 3": f"{of['top 3'] / of['requests']:.3f}" if name == "both" else "",
         "first requests": of["first"],
         **{kind: f"{of[f'{name} {kind}'] / of['first']:.3f}"
            for kind in ("right", "offered", "asked", "wrong")}}
        for language, of in sorted(counts.items())
        for name in ("both", "first reader")
    ]  # fmt: skip
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
