"""Ask a file of requests in one world, and write how each is read and answered, and how fast.

    python -m tests.benchmarks.asked_requests FILE... --out ANSWERS.jsonl [--record]

FILE has one request a line; a follow-up is indented, `#` begins a comment. A file of JSON lines has
`id`, `lang` and `turns` with `text`, as the sets of tests/integration/data. Each conversation is
one of its own. Proposals are written, and never approved. The world is `asked_world`'s. A line of
the answers has the request, what it was read as, the answer, and the milliseconds until it was
whole; `--record` writes their median and P95 to results/asked_requests.csv. Judges who have not
seen the program decide what is right.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.host_protocol import Answer
from gpudeck.assistant.intents.state import State
from gpudeck.scheduler.protocol.errors import UserError
from tests.benchmarks.asked_world import world
from tests.benchmarks.rows import context, write


class Conversation(NamedTuple):
    """Hold the requests of a conversation."""

    name: str
    language: str
    requests: tuple[str, ...]


def conversations(file: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file."""
    lines = file.read_text("utf-8").splitlines()
    if file.suffix == ".jsonl":
        for row in map(json.loads, lines):
            turns = tuple(turn["text"] for turn in row["turns"])
            yield Conversation(str(row["id"]), str(row.get("lang", "")), turns)
        return
    said: list[list[str]] = []
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        if line[0].isspace() and said:
            said[-1].append(line.strip())
        else:
            said.append([line.strip()])
    for number, turns in enumerate(said, 1):
        yield Conversation(f"{file.stem} {number}", "", tuple(turns))


def ask(assistant: Assistant, one: Conversation) -> Iterator[dict[str, Any]]:
    """Ask a conversation turn by turn, and yield what was read and answered."""
    state: State | None = None
    for turn, text in enumerate(one.requests, 1):
        began = time.perf_counter()
        row: dict[str, Any] = {"conversation": one.name, "turn": turn, "language": one.language,
                               "request": text}  # fmt: skip
        try:
            answer = assistant.ask(text, state=state)
        except UserError as e:
            row |= {"reading": "error", "answer": str(e)}
        else:
            state = answer.state or state
            row |= {"reading": _reading(answer), "answer": answer.text}
        yield row | {"ms": round(1e3 * (time.perf_counter() - began))}


def _reading(answer: Answer) -> str:
    if answer.choices:
        return "choices: " + " | ".join(choice.request.line for choice in answer.choices)
    card = "card: " if answer.proposal is not None else ""
    if answer.call is None:
        return "none"
    made = msgspec.json.encode(answer.call).decode()
    return f"{card}{made}"


def main() -> None:
    """Ask the requests of the files, and write the answers."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.asked_requests")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--record", action="store_true", help="the times, in the results")
    args = parser.parse_args()
    asked = [one for file in args.files for one in conversations(file)]
    spent: list[int] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        world(Path(folder) / "home"),
        args.out.open("w", encoding="utf-8") as out,
    ):
        assistant = Assistant()
        assistant.ask("how hot is gpu 0?")  # the process starts, and loads the encoder
        for one in asked:
            for row in ask(assistant, one):
                spent.append(row["ms"])
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
                out.flush()
    slow = sorted(spent)[int(len(spent) * 0.95)]
    print(f"{len(spent)} requests: {statistics.median(spent):.0f} ms, P95 {slow} ms")
    if args.record:
        row = {"requests": len(spent), "median ms": round(statistics.median(spent)), "P95 ms": slow}
        where = context(f"{os.cpu_count()} cores", ("numpy", "tokenizers"))
        write("asked_requests", [row | where])


if __name__ == "__main__":
    main()
