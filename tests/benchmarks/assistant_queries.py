"""Measure how long it takes to read a request, and to answer a query over thirty days of 8 GPUs.

    python -m tests.benchmarks.assistant_queries [--rounds 20]

Requests are those of tests/integration/data/requests.tsv. The history is filled as in
tests/benchmarks/history.py, which takes a minute or two. The rows go to
results/assistant_queries.csv.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import understand
from gpudeck.assistant.query.devices import devices
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.telemetry.history_table import DAY
from tests.benchmarks.history import fill
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import eventually, state_folder

REQUESTS = Path(__file__).parents[1] / "integration" / "data" / "requests.tsv"
QUERY_MS = 100.0
MEASURES = (("util", "mean"), ("temp", "max"), ("energy", "sum"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.assistant_queries")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows = [{"figure": "reading a request", "unit": "ms", "target": "", **spread(_reading())}]
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        trace = paths.assets() / "h100.trace.gz"
        settings.save(Settings(source=f"replay:{trace}*8", model_folder=TEMPLATE))
        now = time.time()
        fill(paths.history_file(), now)
        rows += _queries(now, args.rounds)
    for row in rows:
        row["met"] = "" if row["target"] == "" else float(str(row["median"])) <= QUERY_MS
        print(f"{row['figure']!s:50} {row['median']:8.4g} ms (p95 {row['p95']:.4g})")
    where = context(f"{os.cpu_count()} cores", ["msgspec"])
    print(write("assistant_queries", [{**row, **where} for row in rows], args.out))
    return 0


def _reading() -> list[float]:
    known, now = Known(("train", "finetune", "eval", "oom"), ("sweep",)), time.time()
    requests = [line.split("\t")[2] for line in REQUESTS.read_text("utf-8").splitlines()]
    reader = shipped_reader()
    return [
        _taken(lambda one=one: understand(one, known, State(), now, reader)) for one in requests
    ]


def _queries(now: float, rounds: int) -> list[dict[str, object]]:
    with Client() as deck:
        eventually(lambda: len(deck.snapshot().devices) == 8, 30.0)
        snapshot = deck.snapshot()
        states = tuple(
            msgspec.structs.replace(
                state, device=msgspec.structs.replace(state.device, id=f"GPU-{index}")
            )
            for index, state in enumerate(snapshot.devices)
        )
        filled = msgspec.structs.replace(snapshot, devices=states)
        found: list[dict[str, object]] = []
        for measure, aggregate in MEASURES:
            query = Query("devices", measure, time=Span(now - 30 * DAY, now), aggregate=aggregate)
            assert devices(deck, query, filled).total is not None
            times = [_taken(lambda q=query: devices(deck, q, filled)) for _ in range(rounds)]
            figure = f"{aggregate} of {measure} over 30 days, 8 GPUs"
            found.append({"figure": figure, "unit": "ms", "target": QUERY_MS, **spread(times)})
        deck.stop_daemon()
    return found


def _taken(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
