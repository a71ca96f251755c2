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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.assistant.reader.labels import PAGES, SPANS, heads, marks
from gpudeck.assistant.reader.quantized import unpack
from gpudeck.assistant.training.requests import Example, examples

HEADS, MARKS = heads(), marks()
_LAYERS = 12
FIXED = 6
"""Layers that stay as they are."""
TAGS = ("", *(f"{start}-{name}" for name in SPANS for start in "BI"))
_HEAD = {name: i for i, name in enumerate(HEADS)}
_MARK = {name: i for i, name in enumerate(MARKS)}
_TAG = {name: i for i, name in enumerate(TAGS)}
_DECAY = 0.9
"""The learning rate of a layer, compared with the one above it."""
_PAGE = {name: i for i, name in enumerate(PAGES)}


class Row(NamedTuple):
    """Hold one example as numbers."""

    ids: list[int]
    states: Tensor
    """What the layers that stay as they are make of it, in half precision: [T, 384]."""
    tags: list[int]
    """-100 where a piece is no part of the request."""
    head: int
    second: int
    """The head of a second meaning; the last class: there is none."""
    marks: list[int]
    page: int


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, channels: int = 384, heads_: int = 12, wide: int = 1536) -> None:
        super().__init__()
        self.heads = heads_
        self.q, self.k, self.v, self.ao = (nn.Linear(channels, channels) for _ in range(4))
        self.fi, self.fo = nn.Linear(channels, wide), nn.Linear(wide, channels)
        self.aln = nn.LayerNorm(channels, 1e-12)
        self.oln = nn.LayerNorm(channels, 1e-12)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            part(x).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])
        x = self.aln(x + self.drop(self.ao(mixed.transpose(1, 2).reshape(b, t, c))))
        found: Tensor = self.oln(x + self.drop(self.fo(functional.gelu(self.fi(x)))))
        return found


class Reader(nn.Module):
    """The encoder with its heads. The embeddings stay as they are."""

    word: Tensor
    pos: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, weights: dict[str, np.ndarray[Any, Any]], fixed: int) -> None:
        super().__init__()
        self.fixed = fixed
        self.register_buffer("word", torch.from_numpy(unpack(weights["word"])), persistent=False)
        pos = weights["pos"].astype(np.float32) + weights["type"]
        self.register_buffer("pos", torch.from_numpy(pos), persistent=False)
        self.norm = nn.LayerNorm(384, 1e-12)
        self.norm.weight.data = torch.from_numpy(weights["norm.w"].copy())
        self.norm.bias.data = torch.from_numpy(weights["norm.b"].copy())
        self.layers = nn.ModuleList([Layer() for _ in range(_LAYERS)])
        for i, layer in enumerate(self.layers):
            for name, module in layer.named_children():
                if name == "drop":
                    continue
                w, b = weights[f"l{i}.{name}.w"], weights[f"l{i}.{name}.b"]
                w = unpack(w) if w.dtype == np.uint8 else w
                module.weight.data = torch.from_numpy(w.copy())
                module.bias.data = torch.from_numpy(b.copy())
        self.register_buffer("mean", torch.zeros(768))
        self.register_buffer("spread", torch.ones(768))
        self.head = nn.Linear(768, len(HEADS))
        self.second = nn.Linear(768, len(HEADS) + 1)
        self.mark = nn.Linear(768, len(MARKS))
        self.page = nn.Linear(768, len(PAGES))
        self.tag = nn.Linear(384, len(TAGS))
        self.drop = nn.Dropout(0.1)

    @torch.no_grad()
    def lower(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the states behind the layers that stay as they are."""
        x = self.norm(self.word[ids] + self.pos[: ids.shape[1]])
        for layer in self.layers[: self.fixed]:
            x = layer(x, mask)
        found: Tensor = x
        return found

    def upper(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last states, and what stands for the whole request: [B, 768]."""
        for layer in self.layers[self.fixed :]:
            x = layer(x, mask)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return x, torch.cat((x[:, 0], mean), -1).float()

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return the logits of all heads from the states of the fixed layers."""
        x, whole = self.upper(x, mask)
        whole = self.drop((whole - self.mean) / self.spread)
        found = {name: getattr(self, name)(whole) for name in ("head", "second", "mark", "page")}
        return found | {"tag": self.tag(self.drop(x))}


def rows(found: Sequence[Example], tokenizer: Tokenizer, model: Reader) -> list[Row]:
    """Return examples as numbers."""
    made, model = [], model.eval()
    for one in found:
        before = f"query: {one.before} | " if one.before else "query: "
        text = before + one.text
        encoded = tokenizer.encode(text)
        ids, places = encoded.ids[:128], encoded.offsets[:128]
        tags = [-100 if b <= len(before) else 0 for a, b in places]
        for field, first, last in one.spans:
            inside = [i for i, (a, b) in enumerate(places)
                      if b > len(before) + first and a < len(before) + last and b > a]  # fmt: skip
            for n, i in enumerate(inside):
                if tags[i] == 0:
                    tags[i] = _TAG[f"{'I' if n else 'B'}-{field}"]
        second = _HEAD[one.heads[1]] if len(one.heads) > 1 else len(HEADS)
        known = [_MARK[mark] for mark in one.marks if mark in _MARK]
        page = _PAGE[one.page] if one.page else -100
        none = torch.zeros(0, 384)
        made.append(Row(ids, none, tags, _HEAD[one.heads[0]], second, known, page))
    done: list[Row] = []
    for batch in batches(made, 64, 0):
        wanted = tensors(batch)
        with torch.autocast("cpu", torch.bfloat16):
            states = model.lower(wanted["ids"], wanted["mask"]).half()
        done += [row._replace(states=states[i, : len(row.ids)].clone())
                 for i, row in enumerate(batch)]  # fmt: skip
    model.train()
    return done


def batches(found: Sequence[Row], size: int, seed: int) -> Iterator[list[Row]]:
    """Yield batches of rows of similar lengths, in random order."""
    order = list(range(len(found)))
    chance = random.Random(seed)
    chance.shuffle(order)
    order = sorted(order, key=lambda i: len(found[i].ids) + chance.random() * 6)
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    chance.shuffle(parts)
    for part in parts:
        yield [found[i] for i in part]


def tensors(batch: Sequence[Row]) -> dict[str, Tensor]:
    """Return a batch as tensors."""
    longest = max(len(row.ids) for row in batch)
    ids = torch.ones(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.bool)
    tags = torch.full((len(batch), longest), -100)
    wanted = torch.zeros(len(batch), len(MARKS))
    states = torch.zeros(len(batch), longest, 384)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = True
        tags[i, : len(row.tags)] = torch.tensor(row.tags)
        states[i, : len(row.states)] = row.states
        wanted[i, row.marks] = 1
    return {
        "ids": ids, "mask": mask, "tag": tags, "mark": wanted, "states": states,
        "head": torch.tensor([row.head for row in batch]),
        "second": torch.tensor([row.second for row in batch]),
        "page": torch.tensor([row.page for row in batch]),
    }  # fmt: skip


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


_NAMES = {"head": HEADS, "second": (*HEADS, ""), "mark": MARKS}
_UNKNOWN = -4.0
"""The bias of a class that a reader has not learnt yet."""


def named(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return weights with the names of their classes, for a table of labels may grow."""
    return {"state": dict(state), "names": {name: list(of) for name, of in _NAMES.items()}}


def load(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of readers' weights, for the classes of today's table."""
    saved = [torch.load(file, weights_only=True) for file in files]
    state = {key: torch.stack([one["state"][key] for one in saved]).mean(0)
             for key in saved[0]["state"]}  # fmt: skip
    for name, wanted in _NAMES.items():
        place = {one: i for i, one in enumerate(saved[0]["names"][name])}
        known = [i for i, one in enumerate(wanted) if one in place]
        for kind, empty in (("weight", 0.0), ("bias", _UNKNOWN)):
            old = state[f"{name}.{kind}"]
            new = torch.full((len(wanted), *old.shape[1:]), empty)
            new[known] = old[[place[wanted[i]] for i in known]]
            state[f"{name}.{kind}"] = new
    return state


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
    parts += [(layer, _DECAY ** (_LAYERS - 1 - i)) for i, layer in enumerate(model.layers)
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
    parser.add_argument("--fixed", type=int, default=FIXED, help="layers that stay as they are")
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
    learnt, judged = rows(kept, tokenizer, model), rows(held, tokenizer, model)
    if args.start:
        model.load_state_dict(load(args.start))
    else:
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
