"""Train the reader of requests: the encoder and its heads, on what people wrote.

    python -m gpudeck.assistant.training.reader ENCODER DATA... --out FOLDER --epochs 4

DATA are files of `requests` (see there). Whole profiles are held out, never single requests.
Several processes can train on shares of the data; `--start` and `export` take the mean of theirs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.assistant.training.reader_network import FIXED, LAYERS, Reader, load, named
from gpudeck.assistant.training.reader_rows import Row, batches, rows, tensors
from gpudeck.assistant.training.requests import examples

_DECAY = 0.9
"""The learning rate of a layer, compared with the one above it."""


def loss_of(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> Tensor:
    """Return the sum of the heads' losses."""
    loss = functional.cross_entropy(found["head"].float(), wanted["head"], label_smoothing=0.05)
    loss = loss + 0.3 * functional.cross_entropy(found["second"].float(), wanted["second"])
    loss = loss + 20 * functional.binary_cross_entropy_with_logits(
        found["mark"].float(), wanted["mark"]
    )
    tags = functional.cross_entropy(found["tag"].float().flatten(0, 1), wanted["tag"].flatten())
    if (wanted["page"] >= 0).any():
        loss = loss + 0.3 * functional.cross_entropy(found["page"].float(), wanted["page"])
    return loss + tags


@torch.no_grad()
def begin(model: Reader, found: Sequence[Row]) -> None:
    """Begin with a linear head on the encoder as it is, so that training does not destroy it."""
    model.eval()
    parts, wanted = [], []
    for batch in batches(found, 64, 0):
        row = tensors(batch)
        with torch.autocast("cpu", torch.bfloat16):
            parts.append(model.upper(row["states"], row["mask"])[1])
        wanted.append(row["head"])
    whole, heads_ = torch.cat(parts), torch.cat(wanted).numpy()
    model.mean.copy_(whole.mean(0))
    model.spread.copy_(whole.std(0) + 1e-6)
    scaled = ((whole - model.mean) / model.spread).numpy()
    linear = LogisticRegression(C=0.01, max_iter=80).fit(scaled, heads_)
    model.head.weight.zero_()
    model.head.bias.fill_(-6.0)
    model.head.weight[linear.classes_] = torch.from_numpy(linear.coef_).float()
    model.head.bias[linear.classes_] = torch.from_numpy(linear.intercept_).float()
    for name in ("second", "mark", "page"):
        getattr(model, name).weight.zero_()
    model.mark.bias.fill_(-4.0)
    model.train()


def train(
    model: Reader,
    found: Sequence[Row],
    held: Sequence[Row],
    epochs: float,
    rate: float,
    size: int,
    file: Path,
    fresh: float = 10.0,
    last: float = 0.0,
) -> None:
    """Train a reader, and keep it in a file after every pass over the requests.

    Args:
        model: The reader.
        found: What it learns from.
        held: What it is judged by.
        epochs: Passes over the requests.
        rate: The highest learning rate, which is that of the last layer.
        size: Requests in a batch.
        file: Where it is kept.
        fresh: The rate of the heads, compared with that of the last layer.
        last: The share of the rate that is left at the end.
    """
    for parameter in (*model.norm.parameters(), *model.layers[: model.fixed].parameters()):
        parameter.requires_grad = False
    heads_ = (model.head, model.second, model.mark, model.page, model.tag)
    parts: list[tuple[nn.Module, float]] = [(head, fresh) for head in heads_]
    parts += [(layer, _DECAY ** (LAYERS - 1 - i)) for i, layer in enumerate(model.layers)
              if i >= model.fixed]  # fmt: skip
    groups = [{"params": list(part.parameters()), "times": times} for part, times in parts]
    optimiser = torch.optim.AdamW(groups, rate, weight_decay=0.01, betas=(0.9, 0.98))
    each = math.ceil(len(found) / size)
    total = math.ceil(epochs * math.ceil(len(found) / size))
    step, began, losses = 0, time.monotonic(), []
    while step < total:
        for batch in batches(found, size, 1 + step):
            if step >= total:
                break
            wanted = tensors(batch)
            share = min(1.0, (step + 1) / (0.06 * total + 1))
            share = share * (1 - (1 - last) * step / total) + 0.01
            for group in optimiser.param_groups:
                group["lr"] = rate * group["times"] * share
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(wanted["states"], wanted["mask"])
            loss = loss_of(logits, wanted)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(loss.item())
            step += 1
            if step % 25 == 0:
                mean = sum(losses[-25:]) / 25
                print(
                    f"{step}/{total} loss {mean:.3f} {time.monotonic() - began:.0f} s", flush=True
                )
            if step % each == 0 or step == total:
                torch.save(named(model.state_dict()), file)
                print(json.dumps(judge(model, held)) if held else "saved", flush=True)


@torch.no_grad()
def judge(model: Reader, found: Sequence[Row]) -> dict[str, float]:
    """Return the shares that are right on rows that were held out."""
    model.eval()
    right: dict[str, float] = {"head": 0, "marks": 0, "tags": 0, "all": 0, "page": 0, "second": 0}
    pages = 0
    for batch in batches(found, 64, 0):
        wanted = tensors(batch)
        logits = model(wanted["states"], wanted["mask"])
        head = logits["head"].argmax(-1) == wanted["head"]
        mark = ((logits["mark"] > 0) == (wanted["mark"] > 0)).all(-1)
        hit = (logits["tag"].argmax(-1) == wanted["tag"]) | (wanted["tag"] < 0)
        tag = hit.all(-1)
        second = logits["second"].argmax(-1) == wanted["second"]
        asked = wanted["page"] >= 0
        pages += int(asked.sum())
        right["page"] += float((logits["page"].argmax(-1) == wanted["page"])[asked].sum())
        for name, one in (("head", head), ("marks", mark), ("tags", tag), ("second", second),
                          ("all", head & mark & tag)):  # fmt: skip
            right[name] += float(one.sum())
    model.train()
    counts = {"page": max(pages, 1)}
    return {name: value / counts.get(name, len(found)) for name, value in right.items()}


def main() -> None:
    """Train a reader, and print what it reads of the profiles that were held out."""
    parser = argparse.ArgumentParser(description="Train the reader of requests.")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", nargs="*", type=int, default=[])
    parser.add_argument("--profiles", nargs="*", type=int, default=[], help="train on these alone")
    parser.add_argument("--share", nargs=2, type=int, default=(0, 1), metavar=("I", "N"),
                        help="train on the I-th of N shares")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--fixed", type=int, default=FIXED,
                        help="layers that stay as they are (12: all)")  # fmt: skip
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--last", type=float, default=0.0, help="share of the rate at the end")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--start", type=Path, nargs="*", help="readers to go on with")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    weights = load_file(args.encoder / "encoder.safetensors")
    tokenizer = Tokenizer.from_file(str(args.encoder / "tokenizer.json"))
    found = [one for file in args.data for one in examples(file)]
    kept = [one for one in found if one.profile not in args.held_out
            and (not args.profiles or one.profile in args.profiles)]  # fmt: skip
    random.Random(args.seed).shuffle(kept)
    kept = kept[args.share[0] :: args.share[1]]
    held = [one for one in found if one.profile in args.held_out]
    model = Reader(weights, args.fixed)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.start:
        model.load_state_dict(load(args.start))
    learnt, judged = rows(kept, tokenizer, model), rows(held, tokenizer, model)
    if not args.start:
        begin(model, learnt)
    if held:
        print(json.dumps(judge(model, judged)), flush=True)
    train(model, learnt, judged, args.epochs, args.rate, args.batch, args.out / "reader.pt",
          3.0 if args.start else 10.0, args.last)  # fmt: skip
    report: dict[str, Any] = {"requests": len(kept), "profiles": len({o.profile for o in kept})}
    if held:
        report |= judge(model, judged)
    (args.out / "report.json").write_text(json.dumps(report))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
