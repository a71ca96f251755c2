"""Train the reader of requests: the encoder and its heads, on what people wrote.

    python -m gpudeck.assistant.training.reader ENCODER DATA... --out FOLDER --held-out 3 9 12

DATA are files of `requests` (see there); composed ones have the profile 1000. Whole profiles are
held out, never single requests. All layers learn, rounded as they ship.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from gpudeck.assistant.training.export import shipped
from gpudeck.assistant.training.reader_network import CLASSIFIERS, LAYERS, Reader
from gpudeck.assistant.training.reader_rows import NONE, Rows, batches, rows
from gpudeck.assistant.training.requests import examples

COMPOSED = 1000
"""The profile of composed requests."""
_BLANK = 3
"""The piece that stands for an unknown one."""


class Settings(NamedTuple):
    """Say how a reader is trained."""

    epochs: float = 8.0
    """Passes over the requests of people."""
    rate: float = 2e-4
    """The highest learning rate, which is that of the last layer."""
    decay: float = 0.9
    """The learning rate of a layer, compared with the one above it."""
    fresh: float = 5.0
    """That of the heads, compared with the last layer."""
    composed: float = 1.0
    """Composed requests in a pass for each of people's."""
    blank: float = 0.05
    """The share of pieces that are made unknown, as a misspelt word is."""
    dropout: float = 0.1
    smoothing: float = 0.1
    batch: int = 64
    seconds: float = math.inf
    """The longest that it may take; the learning rate falls in time."""
    seed: int = 1


def loss_of(found: Mapping[str, Tensor], wanted: Rows, smoothing: float) -> Tensor:
    """Return the sum of the losses of the heads that are among the logits."""
    loss = functional.cross_entropy(found["head"].float(), wanted.head, label_smoothing=smoothing)
    loss = loss + 0.3 * functional.cross_entropy(found["second"].float(), wanted.second)
    loss = loss + 20 * functional.binary_cross_entropy_with_logits(
        found["mark"].float(), wanted.mark
    )
    asked = (wanted.page != NONE).sum().clamp(min=1)
    pages = functional.cross_entropy(found["page"].float(), wanted.page, reduction="sum")
    loss = loss + 0.3 * pages / asked
    if "tag" in found:
        tags = found["tag"].float().flatten(0, 1)
        loss = loss + functional.cross_entropy(tags, wanted.tag.flatten())
    return loss


def fit_heads(model: Reader, found: Rows, steps: int = 300) -> None:
    """Fit the heads on the encoder as it is, so that their errors do not destroy it."""
    model.eval()
    with torch.no_grad():
        whole = torch.cat([model.encode(one.ids, one.mask())[1] for one in found.parts(256)])
    model.mean.copy_(whole.mean(0))
    model.spread.copy_(whole.std(0) + 1e-6)
    heads = [getattr(model, name) for name in CLASSIFIERS]
    for head in heads:
        head.weight.data.zero_()
        head.bias.data.zero_()
    optimiser = torch.optim.AdamW([p for head in heads for p in head.parameters()], 3e-3,
                                  weight_decay=0.1)  # fmt: skip
    for _ in range(steps):
        loss = loss_of(model.classify(whole), found, 0.0)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def train(model: Reader, people: Rows, composed: Rows, settings: Settings) -> int:
    """Train a reader, and return after how many steps it ended.

    Args:
        model: The reader, on the device of the rows.
        people: The requests of people.
        composed: Composed requests, of which each pass draws others.
        settings: How.
    """
    torch.manual_seed(settings.seed)
    device = people.ids.device
    _set_dropout(model, settings.dropout)
    optimiser = torch.optim.AdamW(_groups(model, settings), settings.rate, weight_decay=0.01,
                                  betas=(0.9, 0.98), fused=device.type == "cuda")  # fmt: skip
    more = min(len(composed.ids), int(len(people.ids) * settings.composed))
    total = math.ceil(settings.epochs * (len(people.ids) + more) / settings.batch)
    step, began = 0, time.monotonic()
    model.train()
    while True:
        drawn = torch.randperm(len(composed.ids))[:more].to(device)
        mixed = Rows(*map(torch.cat, zip(people, Rows(*(one[drawn] for one in composed)),
                                         strict=True)))  # fmt: skip
        for batch in batches(mixed, settings.batch, settings.seed + step):
            done = max(step / total, (time.monotonic() - began) / settings.seconds)
            if done >= 1:
                return step
            for group in optimiser.param_groups:
                group["lr"] = settings.rate * group["times"] * min(done / 0.06 + 0.02, 1 - done)
            ids = _blanked(batch, settings.blank)
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(ids, batch.mask())
            loss = loss_of(logits, batch, settings.smoothing)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
            if step % 100 == 0:
                spent = time.monotonic() - began
                print(f"{step}/{total} loss {loss.item():.3f} {spent:.0f} s", flush=True)


def _groups(model: Reader, settings: Settings) -> list[dict[str, object]]:
    parts = [(getattr(model, name), settings.fresh) for name in (*CLASSIFIERS, "tag")]
    parts += [(layer, settings.decay ** (LAYERS - 1 - i)) for i, layer in enumerate(model.layers)]
    return [{"params": list(part.parameters()), "times": times} for part, times in parts]


def _set_dropout(model: Reader, share: float) -> None:
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = share


def _blanked(batch: Rows, share: float) -> Tensor:
    """Return the pieces of a batch, some of them unknown, but for those of spans and marks."""
    hidden = (batch.tag == 0) & (torch.rand(batch.ids.shape, device=batch.ids.device) < share)
    return batch.ids.masked_fill(hidden, _BLANK)


@torch.no_grad()
def judge(model: Reader, found: Rows) -> dict[str, float]:
    """Return the shares that are right on rows that were held out.

    `head` is the kind, `top 3` whether it is among the first three, `marks` all marks and no
    others, `tags` all letters of spans, `all` these together.
    """
    model.eval()
    right: dict[str, float] = {}
    for wanted in found.parts(256):
        logits = model(wanted.ids, wanted.mask())
        best = logits["head"].topk(3).indices == wanted.head[:, None]
        mark = ((logits["mark"] > 0) == (wanted.mark > 0)).all(-1)
        tag = ((logits["tag"].argmax(-1) == wanted.tag) | (wanted.tag < 0)).all(-1)
        said = {"head": best[:, 0], "top 3": best.any(-1), "marks": mark, "tags": tag,
                "all": best[:, 0] & mark & tag}  # fmt: skip
        for name, one in said.items():
            right[name] = right.get(name, 0.0) + float(one.sum())
    return {name: round(value / len(found.ids), 4) for name, value in right.items()}


def mean_of(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of the weights of readers that began alike."""
    return {name: torch.stack([one[name] for one in states]).mean(0) for name in states[0]}


def main() -> None:
    """Train readers, and write their mean, trained a little further, in the form that ships."""
    parser = argparse.ArgumentParser(description="Train the reader of requests.")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", nargs="*", type=int, default=[])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--readers", type=int, default=4)
    args = parser.parse_args()
    device, settings = torch.device(args.device), Settings()
    tokenizer = Tokenizer.from_file(str(args.encoder / "tokenizer.json"))
    found = [one for file in args.data for one in examples(file)]
    held = [one for one in found if one.profile in args.held_out]
    people = [one for one in found if one.profile not in (*args.held_out, COMPOSED)]
    composed = [one for one in found if one.profile == COMPOSED]
    learnt, filling, judged = (rows(part, tokenizer).to(device)
                               for part in (people, composed, held))  # fmt: skip
    model = Reader(load_file(args.encoder / "encoder.safetensors")).to(device)
    fit_heads(model, learnt)
    began = {name: one.clone() for name, one in model.state_dict().items()}
    trained = []
    for seed in range(args.readers):
        model.load_state_dict(began)
        train(model, learnt, filling, settings._replace(seed=seed))
        trained.append({name: one.clone() for name, one in model.state_dict().items()})
    model.load_state_dict(mean_of(trained))
    train(model, learnt, filling, settings._replace(epochs=1, rate=settings.rate / 4))
    print(json.dumps(judge(model, judged)))
    save_file(shipped(model.state_dict()), args.out / "reader.safetensors")


if __name__ == "__main__":
    main()
