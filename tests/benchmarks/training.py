"""Measure training on this machine, beside what others run, in the same process.

    python -m tests.benchmarks.training PART [--model 124M] [--batch 32] [--tokens 1024]
        [--rounds 5] [--steps 20] [--kills 10] [--folder FOLDER] [--results FOLDER]

The parts:

- speed: ours beside plain torch as a careful person writes it, and nanochat. Each contender is a
  loop that goes on at its turn; joules are those of the card's counter.
- large: 1.5B in bf16, in FP8, and with moments in 8 bits.
- recurrent: RWKV-7 0.4B with our recurrence and with fla-core's in the same model and loop, and
  flash-linear-attention's own model, whose kernels `training_tuning` compiles beforehand. Give each
  contender (`--only`) a process and a TORCHINDUCTOR_CACHE_DIR of its own: layers that torch 2.11
  takes from its caches fail.
- lora: small matrices beside a frozen model of Llama-3-8B's shape with random weights; the same by
  peft in a loop, and by TRL.
- long: the same on one long sequence, whose tokens the processes of torchrun divide.
- curves: ours (also in FP8, and with moments in 8 bits) and plain torch on a real text, from the
  same first weights, in several orders.
- memory: what is estimated after some steps, and what the next --seconds take, on twelve shapes.
- kills: a run that is killed and stopped at random steps beside an undisturbed one.
- divided: ours on one GPU, then on as many as torchrun starts processes, each with --batch
  sequences.

`speed` also writes training_kernels.csv: what the GPU computes in a step of each contender.

Each row goes to results/training_*.csv as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.training import recurrent
from gpudeck.accel.training.api import open_data
from gpudeck.accel.training.estimate import estimate_of, is_due
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.ranks import count_ranks, rank_of
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shapes import SHAPES as SIZES
from gpudeck.accel.training.shapes import new_recurrent_config
from gpudeck.accel.workloads.train import join_ranks
from tests.benchmarks import rows
from tests.benchmarks.peer_tuning import brief_tuning
from tests.benchmarks.training_curves import curves
from tests.benchmarks.training_lora import long, lora
from tests.benchmarks.training_peers import Nanochat, by_fla, fla_steps, plain_steps
from tests.benchmarks.training_runs import (
    VOCABULARY,
    Ear,
    compare,
    forget,
    gibibytes,
    operations,
    prepare,
    run_of,
    say,
    take_turns,
    wanted,
    wide_tokenizer,
    write,
)


class Case(NamedTuple):
    """A run whose memory and time are compared with what was predicted."""

    model: str
    batch: int
    tokens: int
    parts: int = 1
    recompute: bool = False
    compiled: bool = False


SHAPES = (
    Case("124M", 1, 1024), Case("124M", 8, 1024), Case("124M", 32, 1024),
    Case("124M", 32, 1024, parts=4), Case("124M", 4, 4096), Case("124M", 1, 8192),
    Case("15M", 64, 256), Case("15M", 16, 2048), Case("350M", 8, 1024),
    Case("350M", 16, 1024, recompute=True), Case("124M", 8, 1024, compiled=True),
    Case("124M", 32, 1024, parts=2, compiled=True),
)  # fmt: skip
UNTIMED = 4
"""The first steps, which do not count as speed."""


def speed(args: argparse.Namespace) -> None:
    """Write training_speed.csv: ours, plain torch, and nanochat's model of as many layers."""
    shape = {"model": args.model, "batch": args.batch, "tokens": args.tokens}
    made: list[Run] = []

    def ours(**more: Any) -> Iterator[object]:
        made.append(run_of(args.folder / "speed", Ear(), **shape, **more))
        return made[-1].steps()

    vocabulary = -(-VOCABULARY // 128) * 128
    device = find_device().torch_device
    plain = partial(plain_steps, args.model, vocabulary, args.batch, args.tokens, device)
    chats: list[Nanochat] = []

    def nanochat() -> Iterator[object]:
        chats.append(Nanochat(SIZES[args.model].layers, VOCABULARY, args.tokens, device))
        return chats[0].steps(args.batch)

    contenders = {"ours": ours, "plain torch": plain, "nanochat": nanochat}

    def counted(name: str) -> float:
        return chats[0].operations() if name == "nanochat" else operations(made[0])

    compare(args, "training_speed", contenders, shape, counted, kernels=True)


def large(args: argparse.Namespace) -> None:
    """Write the rows of 1.5B into training_speed.csv: bf16, FP8, moments in 8 bits, and steps four
    and eight times as large, one after the other."""
    whole = args.batch // 2
    fourfold, eightfold = ({"batch": n * whole, "accumulate": n} for n in (4, 8))
    ways: dict[str, dict[str, Any]] = {
        "ours": {}, "ours, four parts": fourfold, "ours, moments in 8 bits": {"moments": "8bit"},
        "ours, FP8, four parts": {**fourfold, "precision": "fp8"},
        "ours, FP8": {"precision": "fp8"}, "ours, eight parts": eightfold,
    }  # fmt: skip
    for name, more in wanted(args, ways).items():
        given = {"model": "1.5B", "batch": whole, "tokens": args.tokens, **more}
        made: list[Run] = []
        contender = {name: partial(large_steps, args.folder / "large", given, made)}
        shape = {key: given[key] for key in ("model", "batch", "tokens")}
        compare(
            args, "training_speed", contender, shape, lambda _, m=made: operations(m[0]),
            kernels=True,
        )  # fmt: skip
        forget(made)


def large_steps(out: Path, given: dict[str, Any], made: list[Run]) -> Iterator[object]:
    """Make a run, put it into a list, and return its steps."""
    run = run_of(out, Ear(), **given)
    made.append(run)
    if run.settings.precision == "fp8":
        run.choose_fp8()
    return run.steps()


def divided(args: argparse.Namespace) -> None:
    """Write training_divided.csv: ours in the first process of torchrun alone, then divided over
    all by FSDP2."""
    join_ranks()
    meet()
    if rank_of() == 0:
        count = os.environ["WORLD_SIZE"]
        os.environ["WORLD_SIZE"] = "1"
        divide(args, "gradients")
        os.environ["WORLD_SIZE"] = count
    meet()
    for shard in ("gradients", "weights"):
        divide(args, shard)


def meet() -> None:
    """Wait for the other processes."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    dist.all_reduce(torch.zeros(1))


def divide(args: argparse.Namespace, shard: str) -> None:
    """Write the row of ours on as many GPUs as there are processes."""
    gpus, made = count_ranks(), []
    shape = {"model": args.model, "batch": args.batch * gpus, "tokens": args.tokens}

    def steps() -> Iterator[object]:
        made.append(run_of(args.folder / f"divided-{rank_of()}", Ear(), shard=shard, **shape))
        return made[0].steps()

    name = f"ours, divided: {shard}" if gpus > 1 else "ours"
    for turns in take_turns(prepare({name: steps}), args.rounds, args.steps).values():
        tokens = args.batch * gpus * args.tokens
        about = {**shape, "gpus": gpus, "gib": gibibytes()}
        write(args, "training_divided", about, name, turns, tokens, operations(made[0]))
    forget(made)


def recurrences(args: argparse.Namespace) -> None:
    """Write training_recurrent.csv: our recurrence and fla-core's in the same model and loop, then
    flash-linear-attention's own model. What fails when it is compiled runs without."""
    brief_tuning()
    shape = {"model": args.model, "batch": args.batch, "tokens": args.tokens}
    ours = recurrent.linear_attention
    config = new_recurrent_config(args.model, VOCABULARY)
    per_token = config.flops(frozen=False)
    for name, operation in wanted(
        args, {"ours": ours, "fla-core": torch.compiler.disable(by_fla)}
    ).items():
        recurrent.linear_attention = operation
        for compiled in dict.fromkeys((args.compiled, False)):
            made: list[Run] = []

            def steps(made: list[Run] = made, compiled: bool = compiled) -> Iterator[object]:
                run = run_of(args.folder / "recurrent", Ear(), **shape, compile=compiled)
                made.append(run)
                return run.steps()

            contender = {f"{name}, compiled layers" if compiled else name: steps}
            ran = compare(
                args, "training_recurrent", contender, shape, lambda _: per_token, kernels=True
            )
            for run in made:
                say(f"{name}: losses {[row.loss for row in run.journal.rows[:8]]}")
            forget(made)
            if ran:
                break
    recurrent.linear_attention = ours
    device = find_device().torch_device
    models = {"fla's own model": False, "fla's own model, weights in bfloat16": True}
    for name, short in wanted(args, models).items():
        steps_of = partial(fla_steps, config, args.batch, args.tokens, device, short=short)
        compare(
            args, "training_recurrent", {name: steps_of}, shape, lambda _: per_token, kernels=True
        )
        forget([])


def kills(args: argparse.Namespace) -> None:
    """Write training_kills.csv: a run that was killed at random steps, and an undisturbed one.

    Nothing before the fork may use the GPU.
    """
    from gpudeck.accel.training import start
    from tests.training_kills import attempt, disturbed, outcome

    folder = args.folder / "kills"
    shutil.rmtree(folder, ignore_errors=True)
    settings = Settings(
        model=args.model, batch=4, tokens=args.tokens // 2, steps=8 * args.kills, keep=1,
        evaluate=10**6, checkpoint=5, deterministic=True, held_out=0.0, compile=False,
        precision=args.precision, moments=args.moments,
    )  # fmt: skip
    start.load_tokenizer = lambda path: wide_tokenizer()
    os.environ["GPUDECK_HOME"] = str(folder)  # so that the data is read once
    open_data(settings, wide_tokenizer(), lambda *_: None)
    until = time.monotonic() + args.seconds
    quiet, told = attempt(
        msgspec.structs.replace(settings, checkpoint=settings.steps), folder / "quiet"
    )
    sent = disturbed(settings, folder / "noisy", args.kills, args.longest, 0, 10, until)
    say(f"{len(sent)} kills and pauses; waiting for the undisturbed run")
    while os.read(told, 4096):
        pass
    assert os.waitpid(quiet, 0)[1] == 0
    (noisy, noisy_weights), (first, weights) = (
        outcome(folder / n, settings) for n in ("noisy", "quiet")
    )
    row = {
        "model": args.model, "batch": settings.batch, "tokens": settings.tokens,
        "steps": settings.steps, "moments": settings.moments, "killed": sent.count(signal.SIGKILL),
        "paused": sent.count(signal.SIGTERM),
        "equal_losses": first == noisy, "compared": len(first),
        "equal_weights": weights == noisy_weights,
        **rows.context(str(find_device()), ("torch", "triton")),
    }  # fmt: skip
    say(json.dumps(row))
    rows.merge("training_kills", [row], ("model", "moments", "tokens", "device"), args.results)


def memory(args: argparse.Namespace) -> None:
    """Write training_memory.csv: the estimate after some steps, and what the next ones took."""
    small = (Case("tiny", 2, 64), Case("tiny", 4, 64, parts=2))
    for shape in SHAPES[args.first :] if find_device().kind == "cuda" else small:
        row = predicted(args, shape)
        say(json.dumps(row))
        rows.merge("training_memory", [row], (*Case._fields, "device"), args.results)


def predicted(args: argparse.Namespace, shape: Case) -> dict[str, object]:
    """Train with held-out losses and a checkpoint, and compare with the estimate."""
    ear = Ear()
    run = run_of(
        args.folder / "memory", ear, model=shape.model, batch=shape.batch, tokens=shape.tokens,
        accumulate=shape.parts, compile=shape.compiled, recompute=shape.recompute,
        held_out=0.01, evaluate=25, documents=True,
    )  # fmt: skip
    going = run.steps()
    while not is_due(milliseconds(ear)):
        next(going)
    early, estimated = estimate_of(run, run.device, milliseconds(ear)), len(milliseconds(ear))
    failed, until = "", time.monotonic() + args.seconds
    try:
        for _ in going:
            if time.monotonic() >= until:
                break
        run.save(None)
    except torch.OutOfMemoryError:
        failed = "out of memory"
    times = milliseconds(ear)
    late = estimate_of(run, run.device, times[estimated:])
    run.close()
    say(f"estimated after {estimated}: {' '.join(f'{ms:.1f}' for ms in times)}")
    row: dict[str, object] = {
        **shape._asdict(), "predicted_gib": f"{early.memory / 2**30:.5g}",
        "used_gib": f"{late.memory / 2**30:.5g}",
        "memory_error": f"{early.memory / late.memory - 1:.4f}",
        "predicted_ms": f"{1e3 * early.seconds:.5g}", "ms": f"{1e3 * late.seconds:.5g}",
        "time_error": f"{early.seconds / late.seconds - 1:.4f}",
        "steps": f"{estimated} of {len(times)}", "failed": failed,
        **rows.context(str(run.device), ("torch", "triton")),
    }  # fmt: skip
    del run, going
    forget([])
    return row


def milliseconds(ear: Ear) -> list[float]:
    """Return the times of the steps that count as speed."""
    timed = [row.seconds for row in ear.rows if row.seconds is not None]
    return [1e3 * seconds for seconds in timed[UNTIMED:]]


def main() -> None:
    """Measure what the command line asks for."""
    parts = {
        "speed": speed, "large": large, "recurrent": recurrences, "lora": lora, "memory": memory,
        "kills": kills, "divided": divided, "long": long, "curves": curves,
    }  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training")
    parser.add_argument("part", choices=parts)
    parser.add_argument("--model", default="124M")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--first", type=int, default=0, help="curves, memory: the first seed, case")
    parser.add_argument("--only", default="", help="contenders whose names begin so")
    parser.add_argument("--compiled", action="store_true", help="recurrent, curves: compiled")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--longest", type=float, default=0.5, help="seconds before a kill at most")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="kills: no more after these; memory: measured"
    )
    parser.add_argument("--precision", default="bfloat16", help="kills: float32 on a CPU")
    parser.add_argument("--moments", default="float32", help="kills: or 8bit")
    parser.add_argument("--folder", type=Path, default=Path("build/training"))
    parser.add_argument("--results", type=Path, default=rows.RESULTS)
    args = parser.parse_args()
    parts[args.part](args)


if __name__ == "__main__":
    main()
