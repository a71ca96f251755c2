"""Measure how long users wait for the assistant, whose templates write, with the real host.

    python -m tests.benchmarks.assistant_latency [--rounds 8]

The times, in milliseconds, run from the request to the first piece of the answer and to its end, by
the writer of the answer. They are measured for briefs, too, for the first request in a new state
folder, where nothing is compiled yet, and for the first request of a running host. The rows go to
results/assistant_latency.csv.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.host_protocol import Answer, Chunk, Event
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import eventually, state_folder

QUESTIONS = (
    "how much memory is free?",
    "why did job 2 fail?",
    "is the machine busy?",
    "how is job 1?",
    "what runs now?",
)
TARGETS = {("an answer", "first text"): 150.0, ("a brief", "all of it"): 2000.0}


class Waits:
    """Measure the milliseconds to the first text and to the end of an answer."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = defaultdict(list)

    def take(self, name: str, ask: Callable[[Callable[[Event], None]], Answer]) -> None:
        firsts: list[float] = []

        def heard(event: Event) -> None:
            if isinstance(event, Chunk) and event.text:
                firsts.append(time.perf_counter())

        began = time.perf_counter()
        answer = ask(heard)
        ended = time.perf_counter()
        writer = "the model" if answer.writer.startswith("model") else "the template"
        self.found[f"{name}, by {writer}: first text"].append(
            1e3 * ((firsts or [ended])[0] - began)
        )
        self.found[f"{name}, by {writer}: all of it"].append(1e3 * (ended - began))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.assistant_latency")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        os.environ["NUMBA_CACHE_DIR"] = f"{base}/compiled"
        settings.save(Settings(source="cpu"))
        found = measure(args.rounds)
    rows = []
    for name, samples in found.items():
        what, _, until = name.rpartition(": ")
        target = TARGETS.get((what.partition(",")[0], until))
        row = spread(samples)
        rows.append(
            {
                "figure": name,
                "target": target or "",
                "unit": "ms",
                **row,
                "met": "" if target is None else row["median"] <= target,
            }
        )
        print(f"{name:60} {row['median']:8.0f} ms (p95 {row['p95']:.0f}, {row['count']} of them)")
    print(
        write(
            "assistant_latency",
            [{**row, **context(f"{os.cpu_count()} cores", ["torch", "numba"])} for row in rows],
            args.out,
        )
    )
    return 0


def measure(rounds: int) -> dict[str, list[float]]:
    waits, assistant = Waits(), Assistant()
    with Client() as deck:
        eventually(lambda: any(state.reading for state in deck.snapshot().devices), 30.0)
        for argv in (["true"], ["sh", "-c", "echo no data >&2; exit 3"]):
            deck.wait(deck.submit(argv, gpus=0).id, 60.0)
        waits.take("the first request ever", lambda on: assistant.ask(QUESTIONS[0], on_event=on))
        for _ in range(rounds):
            for question in QUESTIONS:
                waits.take("an answer", lambda on, q=question: assistant.ask(q, on_event=on))
            waits.take("a brief", lambda on: assistant.ask("what happened today?", on_event=on))
    return waits.found


if __name__ == "__main__":
    sys.exit(main())
