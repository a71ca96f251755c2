"""Measure training on this machine, beside what others run, in the same process.

    python -m tests.benchmarks.training PART [--model 124M] [--batch 32] [--tokens 1024]
        [--rounds 5] [--steps 20] [--kills 10] [--folder FOLDER] [--results FOLDER]

The parts:

- speed: ours beside plain torch as a careful person writes it. Each contender is a loop that goes
  on at its turn; joules are those of the card's counter.
- large: 1.5B in bf16 and in FP8.
- recurrent: RWKV-7 0.4B with our recurrence and with fla-core's in the same model and loop.
- lora: small matrices beside a frozen model of Llama-3-8B's shape with random weights, and peft.
- memory: what is estimated after five steps, and what the whole run takes, on six shapes.
- kills: a run that is killed and stopped at random moments beside an undisturbed one.

Each row goes to results/training_*.csv as soon as it is measured.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.training import recurrent
from gpudeck.accel.training.adapters import adapt
from gpudeck.accel.training.api import open_data
from gpudeck.accel.training.estimate import estimate_of
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shapes import flops
from tests.benchmarks import rows
from tests.benchmarks.training_peers import by_fla, peft_steps, plain_steps
from tests.benchmarks.training_runs import (
    VOCABULARY,
    Ear,
    row_of,
    run_of,
    say,
    take_turns,
    wide_tokenizer,
)

OURS = "--ours"
"""Before the options of the workload: train in this process."""
SHAPES = ((1, 1024, 1), (8, 1024, 1), (32, 1024, 1), (32, 1024, 4), (4, 4096, 1), (1, 8192, 1))
"""Batch, tokens and parts of the runs whose memory is compared."""
ESTIMATED, UNTIMED = 5, 2
"""The steps after which the workload estimates, and the first ones, which do not count."""
KEYS = ("contender", "model", "batch", "tokens", "device")


def compare(
    args: argparse.Namespace,
    file: str,
    contenders: Mapping[str, Callable[[], Iterator[object]]],
    about: Mapping[str, object],
    per_token: Callable[[], float],
) -> None:
    """Let contenders take turns, and write a row of each into a file."""
    tokens = int(str(about["batch"])) * int(str(about["tokens"]))
    for name, turns in take_turns(contenders, args.rounds, args.steps).items():
        row = {**about, **row_of(name, turns, tokens, per_token())}
        say(json.dumps(row))
        rows.merge(file, [row], KEYS, args.results)


def speed(args: argparse.Namespace) -> None:
    """Write training_speed.csv: ours and plain torch."""
    shape = {"model": args.model, "batch": args.batch, "tokens": args.tokens}
    made: list[Run] = []

    def ours(**more: Any) -> Iterator[object]:
        made.append(run_of(args.folder / "speed", Ear(), **shape, **more))
        return made[-1].steps()

    vocabulary = -(-VOCABULARY // 128) * 128
    device = find_device().torch_device
    plain = partial(plain_steps, args.model, vocabulary, args.batch, args.tokens, device)
    contenders = {
        "ours": ours, "plain torch": plain, "ours, not compiled": partial(ours, compile=False),
    }  # fmt: skip
    compare(args, "training_speed", contenders, shape, lambda: operations(made[0]))


def large(args: argparse.Namespace) -> None:
    """Write the rows of 1.5B into training_speed.csv: bf16 and FP8, one after the other."""
    shape = {"model": "1.5B", "batch": args.batch // 2, "tokens": args.tokens}
    for name, precision in (("ours", "bfloat16"), ("ours, FP8", "fp8")):
        made: list[Run] = []

        def ours(precision: str = precision, made: list[Run] = made) -> Iterator[object]:
            made.append(run_of(args.folder / "large", Ear(), **shape, precision=precision))
            if precision == "fp8":
                made[0].choose_fp8()
            return made[0].steps()

        compare(args, "training_speed", {name: ours}, shape, lambda m=made: operations(m[0]))
        forget(made)


def operations(run: Run) -> float:
    """Return the operations of a training step for each token."""
    return run.model.flops(run.settings.tokens, frozen=run.settings.method == "lora")


def forget(made: list[Run]) -> None:
    """Free the memory of runs and of programs that were compiled for them."""
    made.clear()
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def recurrences(args: argparse.Namespace) -> None:
    """Write training_recurrent.csv: our recurrence and fla-core's in the same model and loop."""
    shape = {"model": args.model, "batch": args.batch, "tokens": args.tokens}
    ours = recurrent.linear_attention
    word = ", compiled layers" if args.compiled else ""
    for name, operation in (("ours", ours), ("fla-core", torch.compiler.disable(by_fla))):
        made: list[Run] = []

        def steps(made: list[Run] = made) -> Iterator[object]:
            run = run_of(args.folder / "recurrent", Ear(), **shape, compile=args.compiled)
            made.append(run)
            return run.steps()

        recurrent.linear_attention = operation
        contenders = {f"{name}{word}": steps}
        compare(args, "training_recurrent", contenders, shape, lambda m=made: operations(m[0]))
        forget(made)
    recurrent.linear_attention = ours


def lora(args: argparse.Namespace) -> None:
    """Write training_lora.csv: ours and transformers with peft, on random weights."""
    from gpudeck.accel.serving.families import config_of
    from gpudeck.accel.serving.tiny import SHAPES as SIZES
    from gpudeck.accel.training.model import LanguageModel

    config = {
        **SIZES[args.model], "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    shape = {"model": args.model, "batch": 1, "tokens": args.tokens}
    about = config_of(config, args.model, ())

    class Random:
        """Begin with random weights, drawn where they are used."""

        raw, fingerprint = config, ""

        def __init__(self) -> None:
            self.config = about

        def make(self, device: torch.device, frozen: torch.dtype) -> LanguageModel:
            """Return the frozen model with its small matrices."""
            torch.set_default_dtype(frozen)
            with torch.device(device):
                model = LanguageModel(about, args.tokens)
            torch.set_default_dtype(torch.float32)
            for weight in model.parameters():
                torch.nn.init.normal_(weight, 1.0 if weight.dim() == 1 else 0.0, 0.02)
            adapt(model, settings)
            return model.to(device)

    given = {**shape, "method": "lora", "base": "random"}
    del given["model"]
    settings = Settings(**given)

    def ours() -> Iterator[object]:
        return run_of(args.folder / "lora", Ear(), Random(), **given).steps()  # type: ignore[arg-type]

    device = find_device().torch_device
    per_token = flops(about, args.tokens, frozen=True)
    for name, steps in (("ours", ours), ("peft", partial(peft_steps, config, args.tokens, device))):
        compare(args, "training_lora", {name: steps}, shape, lambda: per_token)
        forget([])


def workload(out: Path, **given: object) -> list[str]:
    """Return the command of a run of ours."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", "tests.benchmarks.training", OURS]
    return [*command, f"--out={out}", *options]


def ours(argv: list[str]) -> int:
    """Run the workload with bytes as tokens, and a vocabulary of the size of a usual tokenizer."""
    from gpudeck.accel.training import start
    from gpudeck.accel.workloads.harness import serve
    from gpudeck.accel.workloads.train import work

    start.load_tokenizer = lambda path: wide_tokenizer()
    return serve("train", work, argv)


def kills(args: argparse.Namespace) -> None:
    """Write training_kills.csv: a run that was killed at random moments, and an undisturbed one."""
    device, folder = find_device(), args.folder / "kills"
    shutil.rmtree(folder, ignore_errors=True)
    given = {
        "model": args.model, "batch": 4, "tokens": args.tokens // 2, "steps": 24 * args.kills,
        "evaluate": 10**6, "checkpoint": 20, "keep": 1, "deterministic": "yes", "held_out": 0,
        "precision": "bfloat16" if device.kind == "cuda" else "float32", "compile": "no",
    }  # fmt: skip
    open_data(Settings(), wide_tokenizer(), lambda *_: None)  # once, not by both runs
    with subprocess.Popen(workload(folder / "quiet", **given), stdout=subprocess.DEVNULL) as quiet:
        sent = disturb(workload(folder / "noisy", **given), args.kills, args.longest)
        say(f"{len(sent)} kills and pauses; waiting for the undisturbed run")
    assert quiet.returncode == 0
    noisy, first = losses(folder / "noisy"), losses(folder / "quiet")
    row = {
        "model": args.model, "batch": given["batch"], "tokens": given["tokens"],
        "steps": given["steps"], "killed": sent.count(signal.SIGKILL),
        "paused": sent.count(signal.SIGTERM),
        "equal_losses": first == noisy, "compared": len(first),
        "equal_weights": weights(folder / "quiet") == weights(folder / "noisy"),
        **rows.context(str(device), ("torch", "triton")),
    }  # fmt: skip
    say(json.dumps(row))
    rows.merge("training_kills", [row], ("model", "batch", "tokens", "device"), args.results)


def disturb(command: list[str], count: int, longest: float) -> list[signal.Signals]:
    """Run a command until it ends by itself; return the signals that ended earlier attempts."""
    draw, sent = random.Random(0), []
    while True:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout if len(sent) < count else ():
                if '"loss"' in line:  # the first step was done
                    time.sleep(draw.uniform(0, longest))
                    sent.append(signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL)
                    process.send_signal(sent[-1])
                    say(f"{sent[-1].name} after {line.strip()}")
                    break
            process.stdout.read()
        if process.returncode == 0:
            return sent[:count] if len(sent) == count else sent[:-1]  # the last came too late
        if process.returncode not in (1, -signal.SIGKILL):
            raise AssertionError(f"an attempt ended with status {process.returncode}")


def losses(out: Path) -> list[tuple[int, float, float]]:
    """Return step, loss and norm of all steps of a run."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if "loss" in row]
    return [(row["step"], row["loss"], row["norm"]) for row in found]


def weights(out: Path) -> str:
    """Return the checksum of the model of a run."""
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def memory(args: argparse.Namespace) -> None:
    """Write training_memory.csv: the estimate after five steps, and what whole runs took."""
    on_gpu = find_device().kind == "cuda"
    for batch, tokens, parts in SHAPES if on_gpu else ((2, 64, 1), (4, 64, 2)):
        row = predicted(args, batch, tokens, parts, args.compiled)
        say(json.dumps(row))
        keys = ("model", "batch", "tokens", "parts", "compiled", "device")
        rows.merge("training_memory", [row], keys, args.results)


def predicted(
    args: argparse.Namespace, batch: int, tokens: int, parts: int, compiled: bool
) -> dict[str, object]:
    """Train thirty steps with held-out losses and a checkpoint, and compare with the estimate."""
    ear, steps = Ear(), 30
    run = run_of(
        args.folder / "memory", ear, model=args.model, batch=batch, tokens=tokens,
        accumulate=parts, compile=compiled, steps=steps, held_out=0.01, evaluate=15,
        checkpoint=steps, documents=True,
    )  # fmt: skip
    going = run.steps()
    for _ in range(ESTIMATED):
        next(going)
    early = estimate_of(run, run.device, milliseconds(ear))
    failed = ""
    try:
        for _ in going:
            pass
    except torch.OutOfMemoryError:
        failed = "out of memory"
    late = estimate_of(run, run.device, milliseconds(ear)[ESTIMATED:])
    run.journal.close()
    row: dict[str, object] = {
        "model": args.model, "batch": batch, "tokens": tokens, "parts": parts,
        "compiled": compiled, "predicted_gib": f"{early.memory / 2**30:.5g}",
        "used_gib": f"{late.memory / 2**30:.5g}",
        "memory_error": f"{early.memory / late.memory - 1:.4f}",
        "predicted_ms": f"{1e3 * early.seconds:.5g}", "ms": f"{1e3 * late.seconds:.5g}",
        "time_error": f"{early.seconds / late.seconds - 1:.4f}", "failed": failed,
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
    if sys.argv[1:2] == [OURS]:
        sys.exit(ours(sys.argv[2:]))
    parts = {
        "speed": speed, "large": large, "recurrent": recurrences, "lora": lora, "memory": memory,
        "kills": kills,
    }  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training")
    parser.add_argument("part", choices=parts)
    parser.add_argument("--model", default="124M")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument(
        "--compiled", action="store_true", help="recurrent, memory: layers compiled"
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds before a kill at most")
    parser.add_argument("--folder", type=Path, default=Path("build/training"))
    parser.add_argument("--results", type=Path, default=rows.RESULTS)
    args = parser.parse_args()
    parts[args.part](args)


if __name__ == "__main__":
    main()
