"""How many numbers a model invents: briefs and answers of random machines, as they would be shown, judged by a checker of its own.

python -m tests.benchmarks.truth [--model FOLDER] [--device cuda] [--texts 10000] [--seed 0] [--out DIR]

Without a model the template writes. A row goes to results/truth.csv: texts by what was the matter with their facts, how many the model
wrote (the rest are the template's, as the model's did not hold), how many have a number that no fact has. Interrupted, it tells of the
texts until then. Exit status 1 where there is such a number, or fewer texts than asked for.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.rows import RESULTS, context, write
from tests.unit.assistant.truth import Count, Text, texts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.truth")
    parser.add_argument("--model", metavar="FOLDER", default="")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    began = time.monotonic()
    count = Count(_until_interrupted(texts(args.texts, args.seed, _authors(args.model, args.device))))
    row = {
        "model": args.model.rstrip("/").rpartition("/")[2] or "template",
        "device": args.device,
        "texts": count.shown,
        "by the model": count.by_model,
        "with an invented number": len(count.found),
        **{f"facts {kind}": count.facts[kind] for kind in ("whole", "missing", "contradicted", "missing and contradicted", "none")},
        "seconds": round(time.monotonic() - began, 1),
    }
    where = context(_gpu() if args.device == "cuda" else platform.processor() or "CPU", ["torch"])
    print(write("truth", [{**row, **where}], args.out))
    for text in count.found:
        print(text, file=sys.stderr)
    print(row)
    return 1 if count.found or count.shown < args.texts else 0


def _until_interrupted(shown: Iterator[Text]) -> Iterator[Text]:
    try:
        for number, text in enumerate(shown, 1):
            yield text
            if number % 100 == 0:
                print(number, "texts", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def _authors(model: str, device: str):
    if not model:
        return lambda random, facts: None
    from assistant.engine import Engine, EngineAuthor

    engine = Engine(model, device)
    return lambda random, facts: EngineAuthor(engine, lambda: False)


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()


if __name__ == "__main__":
    sys.exit(main())
