"""Make runs of ours on drawn tokens, and let contenders take turns in one process."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from gpudeck.accel.runtime.capability import ComputeDevice, find_device
from gpudeck.accel.runtime.peaks import peak_tflops
from gpudeck.accel.runtime.power import EnergyWatch
from gpudeck.accel.training import start as starts
from gpudeck.accel.training.batches import Batches
from gpudeck.accel.training.checkpoint import Checkpoints
from gpudeck.accel.training.journal import Journal, Measured
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.ranks import Ranks, rank_of
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.start import Start, start_of
from gpudeck.accel.training.tokenizers import ByteTokenizer, Tokenizer
from tests.benchmarks import rows
from tests.benchmarks.rows import context

VOCABULARY = 50257
"""GPT-2's."""
T = TypeVar("T")
KEYS = ("contender", "model", "batch", "tokens", "device", "gpus")
"""What rows that replace each other have in common."""
_SEEN = 2**22
"""The drawn tokens."""


def say(text: str) -> None:
    """Print a line at once, with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


class Drawn:
    """Stand in for the tokens of a text: uniformly drawn, one document."""

    starts = np.zeros(1, dtype=np.int64)

    def __init__(self, vocabulary: int) -> None:
        generator = np.random.default_rng(0)
        self._tokens = generator.integers(0, vocabulary, _SEEN, dtype=np.uint32)

    def __len__(self) -> int:
        return _SEEN

    def take(self, begin: int, count: int) -> Any:
        """Return some of the tokens."""
        return self._tokens[begin : begin + count]


def wide_tokenizer() -> ByteTokenizer:
    """Return bytes as tokens, with as many more that no text has as GPT-2's tokenizer knows."""
    tokenizer = ByteTokenizer()
    tokenizer.vocabulary = VOCABULARY
    return tokenizer


class Ear:
    """Keep what a run measures, and print its messages."""

    def __init__(self) -> None:
        self.rows: list[Measured] = []

    def say(self, text: object) -> None:
        """Print a message."""
        say(str(text))

    def measured(self, row: Measured) -> None:
        """Keep what a step measured."""
        self.rows.append(row)

    def stopping(self) -> bool:
        """Never stop."""
        return False


@torch.no_grad()
def draw_on_device(model: torch.nn.Module, seed: int, device: torch.device) -> None:
    """Draw weights where the model computes: for large ones that takes a second, not twenty."""
    generator = torch.Generator(device).manual_seed(seed)
    for name, described in list(model.named_parameters()):
        weight = torch.ones(described.shape, device=device)
        if weight.dim() > 1:
            weight.normal_(0, 0.02, generator=generator)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, torch.nn.Parameter(weight))


def run_of(
    out: Path,
    ear: Ear,
    start: Start | None = None,
    tokenizer: Tokenizer | None = None,
    batches: Batches | None = None,
    **given: Any,
) -> Run:
    """Return a run of ours, by default on drawn tokens, which is ready for its first step."""
    device = find_device()
    on_gpu = device.kind == "cuda"
    settings = Settings(**{
        "steps": 10**6, "evaluate": 10**6, "checkpoint": 10**6, "held_out": 0.0,
        "documents": False, "compile": on_gpu, "precision": "bfloat16" if on_gpu else "float32",
        **given,
    })  # fmt: skip
    tokenizer = wide_tokenizer() if tokenizer is None else tokenizer
    starts.draw = draw_on_device
    Ranks.place = lambda ranks, where: where  # type: ignore[method-assign]
    start = start_of(settings, tokenizer) if start is None else start
    if batches is None:
        drawn = Drawn(min(start.config.vocabulary, VOCABULARY))
        batches = Batches(drawn, settings)  # type: ignore[arg-type]
    run = Run(
        settings, start, tokenizer, batches, "drawn", device,
        Checkpoints(out, 1), Journal(out), ear,
    )  # fmt: skip
    run.journal.begin(-1)
    return run


class Turn(NamedTuple):
    """What a turn of a contender took: seconds a step, and joules a step if they were read."""

    seconds: float
    joules: float | None


def prepare(
    contenders: Mapping[str, Callable[[], Iterator[object]]],
) -> dict[str, Iterator[object]]:
    """Return the contenders after some steps; one that fails is named and left out."""
    device = find_device()
    ready: dict[str, Iterator[object]] = {}
    for name, make in contenders.items():
        began = time.perf_counter()
        try:
            made = make()
            _advance(made, 3, device)
            first = time.perf_counter() - began
            _advance(made, 3, device)
        except Exception as e:  # noqa: BLE001 - a contender that fails must not end the others
            say(f"{name} FAILED: {type(e).__name__}: {str(e)[:300]}")
            continue
        held = torch.cuda.max_memory_reserved() / 2**30 if device.kind == "cuda" else 0.0
        say(f"{name}: ready after {first:.1f} s, {held:.1f} GiB reserved so far")
        ready[name] = made
    return ready


def take_turns(
    ready: Mapping[str, Iterator[object]], rounds: int, steps: int
) -> dict[str, list[Turn]]:
    """Let contenders take turns of some steps each; print each turn, and at last the mean power by
    the card's counter and as runs read it."""
    device, meter = find_device(), Meter()
    found: dict[str, list[Turn]] = {name: [] for name in ready}
    first, start = meter.joules(), time.perf_counter()
    with EnergyWatch(device.torch_device) as watch:
        for number in range(rounds):
            for name, made in ready.items():
                before, began = meter.joules(), time.perf_counter()
                _advance(made, steps, device)
                seconds = (time.perf_counter() - began) / steps
                after = meter.joules()
                joules = None if before is None or after is None else (after - before) / steps
                found[name].append(Turn(seconds, joules))
                say(f"round {number} {name}: {1e3 * seconds:.2f} ms a step, {joules} J")
    last, whole = meter.joules(), time.perf_counter() - start
    if first is not None and last is not None and watch.watts is not None:
        say(f"{(last - first) / whole:.1f} W by the counter in {whole:.1f} s; {watch.watts:.1f} W")
    return found


def _advance(made: Iterator[object], steps: int, device: ComputeDevice) -> None:
    for _ in itertools.islice(made, steps):
        pass
    if device.kind == "cuda":
        torch.cuda.synchronize()


def kernels_of(steps: Iterator[object], count: int = 2) -> list[dict[str, object]]:
    """Return what the GPU computes in a step, by kernel, the longest first.

    The first row is the time from the first kernel to the end of the last, with the time in which
    none ran; the profiler adds to it.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    device = find_device()
    _advance(steps, 1, device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        _advance(steps, count, device)
    spans = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in profiler.events() or ()
        if event.device_type == DeviceType.CUDA
    )
    taken: dict[str, list[float]] = {}
    idle, end = 0.0, spans[0][0]
    for first, last, name in spans:
        idle, end = idle + max(0.0, first - end), max(end, last)
        taken.setdefault(name, []).append(last - first)
    found: list[dict[str, object]] = [
        {
            "kernel": "all",
            "calls": len(spans) / count,
            "ms": f"{(end - spans[0][0]) / 1e3 / count:.4g}",
        },
        {"kernel": "none", "calls": 0, "ms": f"{idle / 1e3 / count:.4g}"},
    ]
    for name, times in sorted(taken.items(), key=lambda pair: -sum(pair[1]))[:40]:
        found.append(
            {
                "kernel": name[:110],
                "calls": len(times) / count,
                "ms": f"{sum(times) / 1e3 / count:.4g}",
            }
        )
    return found


class Meter:
    """Read the counter of energy of the GPU that computes, if it has one."""

    def __init__(self) -> None:
        self._handle: Any = None
        if torch.cuda.is_available():
            import pynvml

            pynvml.nvmlInit()
            name = str(torch.cuda.get_device_properties(0).uuid)
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{name}")

    def joules(self) -> float | None:
        """Return the joules since the driver was loaded; None without a GPU."""
        if self._handle is None:
            return None
        import pynvml

        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def row_of(name: str, turns: list[Turn], tokens: int, per_token: float) -> dict[str, Any]:
    """Return the figures of a contender.

    Args:
        name: what it is called.
        turns: what its turns took.
        tokens: of a step.
        per_token: the operations of a training step for each token.
    """
    device = find_device()
    seconds = statistics.median(turn.seconds for turn in turns)
    joules = [turn.joules for turn in turns if turn.joules is not None]
    tflops = tokens * per_token / seconds / 1e12
    peak = peak_tflops(device.name, "bfloat16")
    return {
        "contender": name, "ms": f"{1e3 * seconds:.5g}",
        "ms_of_turns": " ".join(f"{1e3 * turn.seconds:.5g}" for turn in turns),
        "tokens_per_second": f"{tokens / seconds:.6g}", "tflops": f"{tflops:.5g}",
        "mfu": f"{tflops / peak:.4f}" if peak else "",
        "mj_per_token": f"{1e3 * statistics.median(joules) / tokens:.4g}" if joules else "",
        "python": sys.version.split()[0],
        **context(str(device), ("torch", "triton")),
    }  # fmt: skip


def wanted(args: argparse.Namespace, contenders: Mapping[str, T]) -> dict[str, T]:
    """Return the contenders whose names begin as `--only` says."""
    return {name: made for name, made in contenders.items() if name.startswith(args.only)}


def compare(
    args: argparse.Namespace,
    file: str,
    contenders: Mapping[str, Callable[[], Iterator[object]]],
    about: Mapping[str, object],
    per_token: Callable[[str], float],
    *,
    kernels: bool = False,
) -> bool:
    """Let contenders take turns, and write a row of each into a file; the kernels of a step of each
    into another one if wanted. Return whether any of them ran."""
    tokens = int(str(about["batch"])) * int(str(about["tokens"]))
    ready = prepare(contenders)
    if len(ready) == 1:
        about = {**about, "gib": gibibytes()}
    for name, turns in take_turns(ready, args.rounds, args.steps).items():
        write(args, file, about, name, turns, tokens, per_token(name))
    if not kernels or find_device().kind != "cuda":
        return bool(ready)
    said = rows.context(str(find_device()), ("torch", "triton"))
    for name, steps in ready.items():
        found = [{**about, "contender": name, **row, **said} for row in kernels_of(steps)]
        for row in found[:12]:
            say(f"{name}: {row['ms']} ms, {row['calls']} calls, {row['kernel']}")
        keys = [key for key in (*KEYS, "kernel") if key in found[0]]
        rows.merge("training_kernels", found, keys, args.results)
    return bool(ready)


def write(
    args: argparse.Namespace,
    file: str,
    about: Mapping[str, object],
    name: str,
    turns: list[Turn],
    tokens: int,
    per_token: float,
) -> None:
    """Write the row of a contender into a file, by the first process of torchrun.

    Args:
        args: of the command line.
        file: the name of the file.
        about: what the row is about; `gpus` of it share the work.
        name: what the contender is called.
        turns: what its turns took.
        tokens: of a step.
        per_token: the operations of a training step for each token.
    """
    row = {**about, **row_of(name, turns, tokens, per_token / int(str(about.get("gpus", 1))))}
    if rank_of() == 0:
        say(json.dumps(row))
        rows.merge(file, [row], [key for key in KEYS if key in row], args.results)


def operations(run: Run) -> float:
    """Return the operations of a training step for each token."""
    return run.model.flops(run.settings.tokens, frozen=run.settings.frozen)


def gibibytes() -> str:
    """Return the most GiB of the GPU that torch has reserved, as text."""
    most = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0
    return f"{most / 2**30:.4g}"


def forget(made: list[Run]) -> None:
    """Free the memory of runs and of programs that were compiled for them."""
    made.clear()
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
