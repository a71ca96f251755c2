"""Measure training on this machine, beside plain torch with SDPA in the same run.

    python -m tests.benchmarks.training [--model 124M] [--batch 32] [--tokens 1024] [--steps 40]
        [--kills 10] [--folder FOLDER]

The peer is the same model as a careful person writes it in plain torch: SDPA, full scores with
F.cross_entropy, bf16 by autocast, torch.compile and fused AdamW. Contenders take turns, each in a
process of its own, and the middle of three turns counts. Then the parent kills runs of ours in
deterministic mode and compares them with an undisturbed one, and compares the memory after five
steps with that of the whole run on several shapes. Writes results/training_*.csv.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import rows

if TYPE_CHECKING:
    from gpudeck.accel.serving.families import Config

TURNS = 3
OURS = "--ours"
"""Before the vocabulary and the options of the workload: train in this process."""
SHAPES = ((1, 1024, 1), (8, 1024, 1), (32, 1024, 1), (32, 1024, 4), (4, 4096, 1), (1, 8192, 1))
"""Batch, tokens and parts of the runs whose memory is compared."""


def child(*argv: str) -> dict[str, Any]:
    """Run a measurement of this module in a process, and return what it printed last."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.training", *argv],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def workload(out: Path, vocabulary: int, **given: object) -> list[str]:
    """Return the command of a run of ours."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", "tests.benchmarks.training", OURS, str(vocabulary)]
    return [*command, f"--out={out}", *options]


def ours(vocabulary: int, argv: list[str]) -> int:
    """Run the workload with bytes as tokens, and a vocabulary of the size of a usual tokenizer."""
    from gpudeck.accel.training import api
    from gpudeck.accel.training.tokenizers import ByteTokenizer
    from gpudeck.accel.workloads.harness import serve
    from gpudeck.accel.workloads.train import work

    tokenizer = ByteTokenizer()
    tokenizer.vocabulary = vocabulary
    api.load_tokenizer = lambda path: tokenizer
    return serve("train", work, argv)


def run_ours(out: Path, vocabulary: int, **given: object) -> dict[str, Any]:
    """Run ours to its end, and return its Result."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "result.json"
    subprocess.run(
        workload(out, vocabulary, **given),
        env={**os.environ, "GPUDECK_RESULT": str(file)},
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def plain(args: argparse.Namespace) -> None:
    """Time the peer, and print its milliseconds and its loss after the last step."""
    import torch
    from torch.nn import functional

    from gpudeck.accel.runtime.capability import find_device
    from gpudeck.accel.training import model as ours
    from gpudeck.accel.training.start import draw

    def attend(q: Any, k: Any, v: Any, **_: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        shared = q.shape[1] != k.shape[1]
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
        return seen.transpose(1, 2)

    ours.attention = attend  # the same model, with SDPA in place of our attention
    device = find_device().torch_device
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = ours.LanguageModel(config_of_size(args), args.tokens)
    draw(model, 0)
    model.to(device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)

    def loss_of(tokens: Any, targets: Any) -> Any:
        hidden = model(tokens, dtype, None)
        scores = hidden @ model.head.to(dtype).T
        return functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())

    step_loss = torch.compile(loss_of) if device.type == "cuda" else loss_of
    numbers = torch.Generator().manual_seed(0)
    batches = [
        torch.randint(0, args.vocabulary, (args.batch, args.tokens + 1), generator=numbers).to(
            device
        )
        for _ in range(4)
    ]
    seconds, loss = [], torch.zeros(())
    for step in range(args.steps):
        began = time.perf_counter()
        batch = batches[step % 4]
        loss = step_loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_reserved() if device.type == "cuda" else 0
    median = statistics.median(seconds[5:])
    print(json.dumps({"seconds": median, "memory": memory, "loss": loss.item()}))


def config_of_size(args: argparse.Namespace) -> Config:
    """Return the model of the size that is measured."""
    from gpudeck.accel.serving.families import config_of
    from gpudeck.accel.training.shapes import new_config

    return config_of(new_config(args.model, args.vocabulary, args.tokens, 0), args.model, ())


def speed(args: argparse.Namespace, folder: Path) -> None:
    """Write training_speed.csv: ours with and without document masks and determinism, and plain."""
    from gpudeck.accel.runtime.capability import find_device
    from gpudeck.accel.runtime.peaks import peak_tflops
    from gpudeck.accel.training.shapes import flops

    device = find_device()
    on_gpu = device.kind == "cuda"
    precision = "bfloat16" if on_gpu else "float32"
    shared = {
        "model": args.model, "batch": args.batch, "tokens": args.tokens, "steps": args.steps,
        "evaluate": 10**6, "checkpoint": 10**6, "held_out": 0, "precision": precision,
        "compile": "yes" if on_gpu else "no",
    }  # fmt: skip
    kinds = {
        "ours": {"documents": "no", "deterministic": "no"},
        "ours, documents": {"documents": "yes", "deterministic": "no"},
        "ours, deterministic": {"documents": "no", "deterministic": "yes"},
    }
    sizes = [
        f"--{n}={getattr(args, n)}" for n in ("model", "batch", "tokens", "steps", "vocabulary")
    ]
    found: dict[str, list[float]] = {name: [] for name in (*kinds, "plain")}
    for turn in range(TURNS):
        for name, options in kinds.items():
            result = run_ours(
                folder / f"{name}-{turn}".replace(", ", "-"), args.vocabulary, **shared, **options
            )
            found[name].append(result["timing"]["median"] / 1e3)
        found["plain"].append(child("--plain", *sizes)["seconds"])
    per_token = flops(config_of_size(args), args.tokens, frozen=False)
    work = args.batch * args.tokens * per_token
    peak = peak_tflops(device.name, precision)
    made = []
    for name, seconds in found.items():
        median = statistics.median(seconds)
        tflops = work / median / 1e12
        made.append({
            "contender": name, "model": args.model, "batch": args.batch, "tokens": args.tokens,
            "precision": precision, "ms": f"{1e3 * median:.5g}",
            "ms_of_turns": " ".join(f"{1e3 * s:.5g}" for s in seconds),
            "tokens_per_second": f"{args.batch * args.tokens / median:.5g}",
            "tflops": f"{tflops:.5g}", "mfu": f"{tflops / peak:.4g}" if peak else "",
            **rows.context(str(device), ("torch", "triton")),
        })  # fmt: skip
        print(made[-1])
    rows.merge(
        "training_speed", made, ("contender", "model", "batch", "tokens", "device"), args.results
    )


def kills(args: argparse.Namespace, folder: Path) -> None:
    """Write training_kills.csv: a run that was killed at random moments, and an undisturbed one."""
    from gpudeck.accel.runtime.capability import find_device

    device = find_device()
    on_gpu = device.kind == "cuda"
    given = {
        "model": args.model, "batch": min(args.batch, 8), "tokens": args.tokens,
        "steps": 40 * args.kills, "evaluate": 10**6, "checkpoint": 20, "deterministic": "yes",
        "held_out": 0, "precision": "bfloat16" if on_gpu else "float32",
        "compile": "no",
    }  # fmt: skip
    run_ours(folder / "quiet", args.vocabulary, **given)
    noisy, draw, sent = folder / "noisy", random.Random(0), []
    while True:
        process = subprocess.Popen(
            workload(noisy, args.vocabulary, **given),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            assert process.stdout is not None
            if len(sent) < args.kills:
                for line in process.stdout:
                    if '"loss"' in line:  # the first step was done
                        time.sleep(draw.uniform(0, args.longest))
                        number = signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL
                        process.send_signal(number)
                        sent.append(number)
                        break
            process.stdout.read()
        if process.returncode == 0:
            sent = sent if len(sent) == args.kills else sent[:-1]  # the last one came too late
            break
        if process.returncode not in (1, -signal.SIGKILL):
            raise AssertionError(f"an attempt ended with status {process.returncode}")
    row = {
        "model": args.model, "batch": given["batch"], "tokens": args.tokens,
        "steps": given["steps"], "killed": sent.count(signal.SIGKILL),
        "paused": sent.count(signal.SIGTERM),
        "equal_losses": losses(folder / "quiet") == losses(noisy),
        "equal_weights": weights(folder / "quiet") == weights(noisy),
        **rows.context(str(device), ("torch", "triton")),
    }  # fmt: skip
    print(row)
    rows.merge("training_kills", [row], ("model", "batch", "tokens", "device"), args.results)


def losses(out: Path) -> list[tuple[int, float, float]]:
    """Return step, loss and norm of all steps of a run."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if "loss" in row]
    return [(row["step"], row["loss"], row["norm"]) for row in found]


def weights(out: Path) -> str:
    """Return the checksum of the model of a run."""
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def memory(args: argparse.Namespace, folder: Path) -> None:
    """Write training_memory.csv: the memory after five steps, and that of whole runs."""
    from gpudeck.accel.runtime.capability import find_device

    device, made = find_device(), []
    on_gpu = device.kind == "cuda"
    for batch, tokens, parts in SHAPES if on_gpu else ((2, 64, 1), (4, 64, 2)):
        for compiled in ("no", "yes") if on_gpu else ("no",):
            given = {
                "model": args.model, "batch": batch, "tokens": tokens, "accumulate": parts,
                "steps": 40, "evaluate": 20, "checkpoint": 20, "compile": compiled,
                "precision": "bfloat16" if on_gpu else "float32",
            }  # fmt: skip
            name = f"{batch}-{tokens}-{parts}-{compiled}"
            result = run_ours(folder / name, args.vocabulary, **given)
            predicted, used = (figure(result, f"memory {n}") for n in ("as estimated", "at most"))
            seconds = figure(result, "step as estimated"), result["timing"]["median"]
            made.append({
                **given, "predicted_gib": f"{predicted:.5g}", "used_gib": f"{used:.5g}",
                "memory_error": f"{predicted / used - 1:.4f}",
                "time_error": f"{seconds[0] / seconds[1] - 1:.4f}",
                **rows.context(str(device), ("torch", "triton")),
            })  # fmt: skip
            print(made[-1])
    keys = ("model", "batch", "tokens", "accumulate", "compile", "device")
    rows.merge("training_memory", made, keys, args.results)


def figure(result: dict[str, Any], name: str) -> float:
    """Return a figure of a Result."""
    return float(next(one["value"] for one in result["figures"] if one["name"] == name))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training")
    parser.add_argument("--model", default="124M")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=50257, help="GPT-2's by default")
    parser.add_argument("--longest", type=float, default=6.0, help="seconds before a kill at most")
    parser.add_argument("--folder", type=Path, default=Path("build/training"))
    parser.add_argument("--results", type=Path, default=rows.RESULTS)
    parser.add_argument("--only", choices=("speed", "kills", "memory"), help="one of the three")
    parser.add_argument("--plain", action="store_true", help="time the peer in this process")
    if sys.argv[1:2] == [OURS]:
        sys.exit(ours(int(sys.argv[2]), sys.argv[3:]))
    args = parser.parse_args()
    if args.plain:
        plain(args)
        return
    parts = {"speed": speed, "kills": kills, "memory": memory}
    for name in [args.only] if args.only else parts:
        parts[name](args, args.folder / name)


if __name__ == "__main__":
    main()
