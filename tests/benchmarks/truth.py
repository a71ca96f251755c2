"""Count the numbers that a model invents in briefs and answers about random machines.

    python -m tests.benchmarks.truth [--model FOLDER] [--device cuda] [--texts 10000] [--workers 1]
        [--seed 0] [--out DIR]

An independent checker judges the texts as they would be shown. Without a model, the template writes
them. A row goes to results/truth.csv: the texts by the fault of their facts, how many the model
wrote (the others come from the template, because the model's text did not hold), and how many
contain a number that no fact has. An interrupted run reports the texts so far. The exit status is 1
if there is such a number, or fewer texts than requested.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import signal
import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path

from tests.benchmarks.rows import RESULTS, context, write
from tests.unit.assistant.truth import Count, Text, texts

_PIECE = 50
"""The number of texts of one seed, which one process writes."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.truth")
    parser.add_argument("--model", metavar="FOLDER", default="")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes, each with the model for itself (default: 1)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    began = time.monotonic()
    pieces = [
        (f"{args.seed} {start}", min(_PIECE, args.texts - start))
        for start in range(0, args.texts, _PIECE)
    ]
    with multiprocessing.get_context("spawn").Pool(
        max(1, args.workers), _left_to_the_first
    ) as pool:
        made = pool.imap_unordered(partial(_piece, args.model, args.device), pieces)
        count = Count(_until_interrupted(chain.from_iterable(made)))
    row = {
        "model": args.model.rstrip("/").rpartition("/")[2] or "template",
        "device": args.device,
        "texts": count.shown,
        "by the model": count.by_model,
        "with an invented number": len(count.found),
        **{
            f"facts {kind}": count.facts[kind]
            for kind in ("whole", "missing", "contradicted", "missing and contradicted", "none")
        },
        "seconds": round(time.monotonic() - began, 1),
    }
    where = context(_gpu() if args.device == "cuda" else platform.processor() or "CPU", ["torch"])
    print(write("truth", [{**row, **where}], args.out))
    for text in count.found:
        print(text, file=sys.stderr)
    print(row)
    return 1 if count.found or count.shown < args.texts else 0


def _left_to_the_first() -> None:
    """Ignore Ctrl+C, because the first process handles it and reports what there is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _piece(model: str, device: str, piece: tuple[str, int]) -> list[Text]:
    seed, count = piece
    return list(texts(count, seed, _authors(model, device)))


def _until_interrupted(shown: Iterator[Text]) -> Iterator[Text]:
    try:
        for number, text in enumerate(shown, 1):
            yield text
            if number % 100 == 0:
                print(number, "texts", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


@cache
def _authors(model: str, device: str):
    if not model:
        return lambda random, facts: None
    from gpudeck.assistant.engine.author import EngineAuthor
    from gpudeck.assistant.engine.engine import Engine

    engine = Engine(model, device)
    return lambda random, facts: EngineAuthor(engine, lambda: False)


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()


if __name__ == "__main__":
    sys.exit(main())
