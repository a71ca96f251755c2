"""The training of the assistant's router on a GPU, by each form of its recurrence.

    python -m tests.benchmarks.router_training [--steps 60] [--rows 512] [--model 4x256]
        [--examples 8000] [--turn FILE] [--out FOLDER]

The same model learns the same composed examples from the same start, in bf16 but for the
recurrence: in chunks in torch, and by the kernels of linear attention in fp32 and in bf16. A row
has the tokens a second of the median step, without the first ten, and the losses, whose differences
from those of the first form are roundings.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.runtime import power
from gpudeck.accel.rwkv import wkv
from gpudeck.assistant.router.vocabulary import Vocabulary
from gpudeck.assistant.training import network
from gpudeck.assistant.training.examples import fillers, samples
from gpudeck.assistant.training.router import Batch, Pool, batches
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.shared_gpu import turn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = Path(__file__).parents[2] / "assets" / "rwkv7-router" / "vocabulary.txt"
SKIPPED, SEEN = 10, 20
"""Steps that are not timed, and those at the end whose losses are averaged."""

Recurrence = Callable[..., tuple[Tensor, Tensor]]


def in_bfloat16(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Run the kernels with vectors of bf16; decays and states are fp32."""
    r, w, k, v, a, b, state = tensors
    r, k, v, a, b = (x.bfloat16() for x in (r, k, v, a, b))
    out, last = network.by_kernels(r, w, k, v, a, b, state)
    return out.float(), last


FORMS: dict[str, Recurrence] = {
    "chunks in torch": wkv.chunked,
    "kernels, fp32": network.by_kernels,
    "kernels, bf16": in_bfloat16,
}


def trained(
    run: Recurrence, model: tuple[int, int], size: int, steps: list[Batch]
) -> tuple[list[float], list[float], float]:
    """Train from seed 1; return the milliseconds and losses of all steps, and the clock in MHz."""
    torch.manual_seed(1)
    trainee = network.Network(*model, size).to(DEVICE)
    optimiser = torch.optim.AdamW(trainee.groups(1e-3, 0.1), betas=(0.9, 0.99), eps=1e-18)
    times, losses, clocks = [], list[Tensor](), []

    def recurrence(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(DEVICE, enabled=False):
            return run(*tensors)

    with mock.patch.object(network, "_recurrence", recurrence):
        for batch in steps:
            began = time.perf_counter()
            tokens, at, wanted = (part.to(DEVICE) for part in batch)
            with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
                logits = trainee(tokens, at).float()
            loss = functional.cross_entropy(logits, wanted)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
            optimiser.step()
            losses.append(loss.detach())
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - began))
            if len(times) % 10 == 0:
                clocks.append(power.read(torch.device(DEVICE, 0))[0] if DEVICE == "cuda" else None)
    known = [c for c in clocks if c is not None]
    return times, torch.stack(losses).tolist(), statistics.fmean(known) if known else 0.0


def main() -> None:
    """Train by each form and write router_training.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=512, help="examples of a step")
    parser.add_argument("--model", default="4x256", help="layers and channels")
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--turn", type=Path, help="measure while this file is locked")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.zeros(1, device=DEVICE)
    layers, channels = map(int, given.model.split("x"))
    vocabulary = Vocabulary.load(VOCABULARY)
    pool = Pool(*samples(1, given.examples, vocabulary, True, fillers()))
    steps = list(islice(batches(pool, given.rows, 1), given.steps))
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    with turn(given.turn):
        measure(given, (layers, channels), vocabulary.size, steps, name)


def measure(
    given: argparse.Namespace, model: tuple[int, int], size: int, steps: list[Batch], name: str
) -> None:
    """Train by each form; write the rows after each."""
    sizes = [batch.tokens.numel() for batch in steps[SKIPPED:]]
    rows: list[dict[str, object]] = []
    first: list[float] = []
    for form, run in FORMS.items():
        times, losses, clock = trained(run, model, size, steps)
        first = first or losses
        apart = max(abs(x - y) for x, y in zip(losses, first, strict=True))
        rates = [1e3 * n / t for n, t in zip(sizes, times[SKIPPED:], strict=True)]
        found = spread(rates)
        rows.append({
            **context(name, ("torch", "triton")), "model": given.model, "rows": given.rows,
            "steps": given.steps, "recurrence": form, "tokens_per_s": f"{found['median']:.0f}",
            "tokens_per_s_min": f"{found['min']:.0f}", "tokens_per_s_p95": f"{found['p95']:.0f}",
            "step_ms": f"{statistics.median(times[SKIPPED:]):.4g}",
            "tokens_of_a_step": round(statistics.fmean(sizes)), "clock_mhz": f"{clock:.0f}",
            "loss": f"{statistics.fmean(losses[-SEEN:]):.5f}",
            "largest_difference": f"{apart:.1e}",
        })  # fmt: skip
        print(rows[-1], flush=True)
        write("router_training", rows, given.out)


if __name__ == "__main__":
    main()
