"""Train models that read requests: several sizes at once, each in a process of its own.

    python -m gpudeck.assistant.training.router FOLDER --seconds 250 --samples 1500000 \\
        --workers 12 --models 4x256x1 4x256x1xtwice

A model is LAYERSxCHANNELSxSEED; one that ends in `xtwice` reads each request twice.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from gpudeck.assistant.router.vocabulary import Vocabulary
from gpudeck.assistant.training.examples import fillers, make_vocabulary, samples, shapes
from gpudeck.assistant.training.network import Network

_PIECE = 20_000
"""Examples that one process composes at a time."""
_AVERAGE = 0.995
"""The weight of the moving average of the weights, which is what is saved."""
_SMOOTHING = 0.02
_HELD_OUT = 2000
"""Composed examples that are kept from training. They are not other people's requests."""


class Pool(NamedTuple):
    """Hold examples: their tokens in a row, and the lengths of each prompt and whole example."""

    tokens: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.int32]


class Batch(NamedTuple):
    """Hold a batch: tokens [B, T], and the places and tokens of the meanings, both [N]."""

    tokens: Tensor
    at: Tensor
    wanted: Tensor


def _compose(work: tuple[Path, int, int, bool]) -> Pool:
    folder, seed, count, twice = work
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    return Pool(*samples(seed, count, vocabulary, twice, fillers()))


def compose(folder: Path, count: int, workers: int, twice: bool) -> Pool:
    """Return so many composed examples."""
    work = [
        (folder, 1 + 1000 * i, min(_PIECE, count - start), twice)
        for i, start in enumerate(range(0, count, _PIECE))
    ]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        parts = pool.map(_compose, work, chunksize=1)
    return Pool(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def batches(pool: Pool, rows: int, seed: int) -> Iterator[Batch]:
    """Yield batches without end, of examples of similar lengths."""
    random = np.random.default_rng(seed)
    starts = np.cumsum(pool.lengths[:, 1]) - pool.lengths[:, 1]
    while True:
        order = random.permutation(len(pool.lengths))
        chunks = np.array_split(order, max(1, len(order) // (rows * 64)))
        order = np.concatenate([c[np.argsort(pool.lengths[c, 1], kind="stable")] for c in chunks])
        parts = np.array_split(order, max(1, len(order) // rows))
        for i in random.permutation(len(parts)):
            yield _batch(pool, parts[i], starts[parts[i]])


def _batch(pool: Pool, rows: npt.NDArray[np.intp], starts: npt.NDArray[np.int64]) -> Batch:
    prompts, ends = pool.lengths[rows, 0, None], pool.lengths[rows, 1, None]
    width = np.arange(-(-int(ends.max()) // 8) * 8)
    places = np.minimum(starts[:, None] + width, len(pool.tokens) - 1)
    tokens = np.where(width < ends, pool.tokens[places], 0).astype(np.int64)
    where = np.flatnonzero((width < ends) & (width >= prompts))
    wanted = tokens.reshape(-1)[where]
    return Batch(*map(torch.from_numpy, (tokens, where - 1, wanted)))


def train(
    name: str, folder: Path, seconds: float, rows: int, rate: float, device: str, start: str
) -> None:
    """Train one model for some time; write its weights, and a table of how it went.

    Args:
        name: Layers, channels and seed, such as `3x192x2xtwice`.
        folder: Holds the vocabulary and the examples, and gets the weights.
        seconds: How long to train.
        rows: Examples of a step.
        rate: The highest learning rate.
        device: `cuda` or `cpu`.
        start: A file of weights of this shape and vocabulary to start from; empty for none.
    """
    layers, channels, seed = map(int, name.split("x")[:3])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    stored = np.load(folder / f"{_data(name)}.npz")
    pool = Pool(stored["tokens"], stored["lengths"])
    kept = len(pool.lengths) - min(_HELD_OUT, len(pool.lengths) // 10)
    cut = int(pool.lengths[:kept, 1].sum())
    network = Network(layers, channels, vocabulary.size).to(device)
    if start:
        with torch.no_grad():
            for key, tensor in load_file(start).items():
                network.canonical()[key].copy_(tensor)
    optimiser = torch.optim.AdamW(
        network.groups(rate, 0.1), betas=(0.9, 0.99), eps=1e-18, fused=device == "cuda"
    )
    average = [parameter.detach().clone() for parameter in network.parameters()]
    stream = batches(Pool(pool.tokens[:cut], pool.lengths[:kept]), rows, seed)
    began, losses = time.monotonic(), list[Tensor]()
    while (gone := (time.monotonic() - began) / seconds) < 1:
        now = 2e-5 + (rate - 2e-5) * 0.5 * (1 + math.cos(math.pi * gone))
        for group in optimiser.param_groups:
            group["lr"] = now * min(1.0, (len(losses) + 1) / 150) * group["times"]
        logits, wanted = _logits(network, next(stream), device)
        loss = functional.cross_entropy(logits, wanted, label_smoothing=_SMOOTHING)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.detach())
        with torch.no_grad():
            share = 1 - min(_AVERAGE, len(losses) / (9 + len(losses)))
            torch._foreach_lerp_(average, list(network.parameters()), share)
        if len(losses) in (10, 100) or len(losses) % 500 == 0:
            mean = torch.stack(losses[-100:]).mean().item()
            print(f"{name} step {len(losses)} loss {mean:.4f} {time.monotonic() - began:.0f} s",
                  flush=True)  # fmt: skip
    with torch.no_grad():
        for parameter, mean_of in zip(network.parameters(), average, strict=True):
            parameter.copy_(mean_of)
    _save(network, folder / f"{name}.safetensors")
    about = {
        "name": name,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "steps": len(losses),
        "rows": rows,
        "seconds": time.monotonic() - began,
        "start": Path(start).name,
        "examples": kept,
        "loss": torch.stack(losses[-100:]).mean().item(),
        "exact on composed examples": _exact(
            network, Pool(pool.tokens[cut:], pool.lengths[kept:]), device
        ),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }
    (folder / f"{name}.json").write_text(json.dumps(about, indent=1))
    print(json.dumps(about), flush=True)


def _data(name: str) -> str:
    return "twice" if name.endswith("xtwice") else "once"


def _logits(network: Network, batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    """Return the logits at the meanings of a batch, and their tokens."""
    tokens, at, wanted = (part.to(device, non_blocking=True) for part in batch)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        return network(tokens, at).float(), wanted


@torch.no_grad()
def _exact(network: Network, pool: Pool, device: str) -> float:
    """Return the share of examples whose meaning is predicted wholly, each symbol from the last."""
    wrong = seen = 0
    stream = batches(pool, 200, 0)
    while seen < len(pool.lengths):
        batch = next(stream)
        logits, wanted = _logits(network, batch, device)
        missed = (logits.argmax(-1) != wanted).cpu()
        wrong += len(torch.unique((batch.at // batch.tokens.shape[1])[missed]))
        seen += len(batch.tokens)
    return 1 - wrong / seen


def _save(network: Network, file: Path) -> None:
    tensors = {
        name: tensor.detach().half().cpu().contiguous()
        for name, tensor in network.canonical().items()
    }
    save_file(tensors, new := file.with_suffix(".new"))
    new.replace(file)


def main() -> None:
    """Compose the examples, and train the models."""
    parser = argparse.ArgumentParser(description="Train models that read requests.")
    parser.add_argument("folder", type=Path)
    for name, default in {
        "seconds": 250.0, "samples": 1_000_000, "workers": 12, "rows": 512, "rate": 1.5e-3,
        "pieces": 4500,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--start", default="", help="weights to start from")
    parser.add_argument("--models", nargs="+", default=["4x256x1xtwice"])
    args, began = parser.parse_args(), time.monotonic()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / "vocabulary.txt").exists():
        make_vocabulary(40_000, args.pieces).save(args.folder / "vocabulary.txt")
    if not (args.folder / "meanings.txt").exists():
        (args.folder / "meanings.txt").write_text("\n".join(shapes(250_000)) + "\n")
    for data in sorted(set(map(_data, args.models))):
        pool = compose(args.folder, args.samples, args.workers, data == "twice")
        np.savez(args.folder / f"{data}.npz", **pool._asdict())
        said = f"{len(pool.lengths)} examples of {len(pool.tokens)} tokens"
        print(said, f"{time.monotonic() - began:.0f} s", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left = args.seconds - (time.monotonic() - began)
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=train, args=(name, args.folder, left, args.rows, args.rate, device, args.start)
        )
        for name in args.models
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
