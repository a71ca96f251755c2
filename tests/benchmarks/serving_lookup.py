"""Measure what looking up tokens in the prompt brings to edits of code.

python -m tests.benchmarks.serving_lookup [--device cpu] [--shape NAME] [--edits 10] [--out FOLDER]

The edits are changes of one Python file from this repository's history: the prompt is the file as
it was, the answer is the file as it became. A model with random weights edits no code, so each
token that it chooses is replaced by the one of the true edit, after its scores were computed: the
time is that of a model which makes this edit, and proposals are right as often as they would be.
Answers with and without the lookup take turns; only the time after the first token counts. Tokens
are those of the RWKV World vocabulary, from the package `rwkv`. `--save FILE` writes the edits as
JSON and ends; `--from FILE` measures with these, where the history is not at hand. Rows go to
serving_lookup.csv.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from gpudeck.accel.runtime.power import SensorWatch
from gpudeck.accel.rwkv.tokenizer import Tokenizer as World
from gpudeck.accel.serving import engine as serving_engine
from gpudeck.accel.serving.request import Choice, Request
from gpudeck.accel.serving.sampler import Row, Scores, choose
from gpudeck.accel.serving.speculation import PromptLookup
from tests.benchmarks import serving
from tests.benchmarks.rows import RESULTS, context, write
from tests.unit.accel.rwkv.rwkv_models import vocabulary_file

TOKENS = range(200, 1000)
"""Of a file before and after its edit."""
CHANGED = 0.3
"""The largest share of lines that an edit adds or removes."""


def git(*asked: str) -> str:
    """Return what git says of this repository."""
    return subprocess.run(("git", *asked), capture_output=True, text=True, check=True).stdout


def edits(vocabulary: World) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield a name, the tokens before and those after, of at most one edit for each commit."""
    for commit in git("log", "--format=%h", "--no-merges", "-n", "400", "--", "*.py").split():
        for line in git("show", "--format=", "--numstat", commit, "--", "*.py").splitlines():
            added, removed, file = line.split("\t")
            if "=>" in file or not added.isdigit() or min(int(added), int(removed)) == 0:
                continue
            after = git("show", f"{commit}:{file}")
            if int(added) + int(removed) > CHANGED * len(after.splitlines()):
                continue
            prompt = vocabulary.encode(git("show", f"{commit}^:{file}"))
            answer = vocabulary.encode(after)
            if len(prompt) in TOKENS and len(answer) in TOKENS:
                yield f"{commit}:{file}", prompt, answer
            break


class TrueEdit:
    """Choose the tokens of the true answer, as if the model had."""

    def __init__(self) -> None:
        self.answer: list[int] = []

    def __call__(self, scores: Scores, rows: Sequence[Row]) -> list[Choice | None]:
        made = choose(scores, rows)
        return [
            None if one is None else replace(one, token=self.answer[row.number])
            for one, row in zip(made, rows, strict=True)
        ]


def seconds(engine: serving_engine.Engine, asked: Request) -> tuple[float, int]:
    """Return the time of an answer after its first token, and the steps that it took."""
    stream, steps, began = engine.submit(asked), 0, 0.0
    while stream.ended is None:
        engine.step()
        while stream.take() is not None:
            began = began or time.perf_counter()
        steps += bool(began)
    if engine.model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", default="smollm-135m")
    parser.add_argument("--edits", type=int, default=10)
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.source is not None:
        chosen = json.loads(args.source.read_text())[: args.edits]
    else:
        chosen = list(islice(edits(World.load(vocabulary_file())), args.edits))
    if args.save is not None:
        args.save.write_text(json.dumps(chosen))
        return
    bench = serving.Bench(args.device, Path(tempfile.mkdtemp()))
    engines = {
        "plain": bench.engine(args.shape),
        "lookup": bench.engine(args.shape, speculator=PromptLookup()),
    }
    for engine in engines.values():
        serving.run(engine, serving.request(64, 16))  # compiles what is compiled at first use
    serving_engine.choose = true = TrueEdit()
    device, compiler = "CPU, one thread", "numba"
    if args.device == "cuda":
        device, compiler = torch.cuda.get_device_name(), "triton"
    known = {"shape": args.shape, **context(device, ("torch", compiler))}
    rows, gains = [], []
    most = engines["plain"].model.config.vocabulary
    for name, before, after in chosen:
        prompt, answer = [t % most for t in before], [t % most for t in after]
        true.answer = answer
        asked = Request(tuple(prompt), len(answer), serving.GREEDY, ignore_end=True)
        with SensorWatch(engines["plain"].model.device) as watch:
            taken = {who: seconds(engine, asked) for who, engine in engines.items()}
        gains.append(taken["plain"][0] / taken["lookup"][0])
        rows += [
            {"edit": name, "implementation": who,
             "proposals": serving_engine._DRAFTS[args.device], "prompt": len(prompt),
             "answer": len(answer), "seconds": f"{time_:.3f}",
             "tokens_a_step": f"{(len(answer) - 1) / steps:.3f}",
             "lookup_beside_plain": f"{gains[-1]:.3f}",
             "clock_mhz": round(watch.sensors().sm_mhz or 0), **known}
            for who, (time_, steps) in taken.items()
        ]  # fmt: skip
        print(name, taken, f"{gains[-1]:.3f}", flush=True)
        write("serving_lookup", rows, args.out)
    print(f"median {statistics.median(gains):.3f}, least {min(gains):.3f}")


if __name__ == "__main__":
    main()
