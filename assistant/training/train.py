"""Train the assistant's own model from nothing, and save it as a folder that the assistant loads.

python -m assistant.training.train FOLDER --device cuda --minutes 25
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from assistant.tokenizer import END, VOCABULARY, Tokenizer
from assistant.training import vocabulary
from assistant.training.corpus import Sample, stream
from assistant.training.network import Network


@dataclass(frozen=True)
class Plan:
    """What is trained, and for how long: until the minutes are over or the steps are done."""

    layers: int = 8
    channels: int = 320
    tokens: int = 4096
    """Size of the vocabulary at most."""
    texts: int = 4000
    """Samples that the vocabulary is made of."""
    briefs: float = 0.5
    """Share of the samples that are briefs; the others are requests to route."""
    batch: int = 64
    length: int = 1024
    """Tokens of a sample; longer ones are left out."""
    steps: int = 20_000
    minutes: float = 25.0
    rate: float = 6e-4
    last_rate: float = 6e-5
    warm_up: int = 50
    decay: float = 0.1
    device: str = "cpu"
    seed: int = 1


def train(plan: Plan, folder: Path) -> list[float]:
    """The losses of all steps; the folder then holds model.safetensors, config.json, the vocabulary and training.json."""
    torch.manual_seed(plan.seed)
    folder.mkdir(parents=True, exist_ok=True)
    texts = (sample.prompt + sample.answer for sample in islice(stream(plan.seed, plan.briefs), plan.texts))
    vocabulary.write(vocabulary.train(texts, plan.tokens), folder / VOCABULARY)
    tokenizer = Tokenizer.load(folder)
    network = Network(plan.layers, plan.channels, tokenizer.size).to(plan.device)
    optimiser = torch.optim.AdamW(network.groups(plan.rate, plan.decay), betas=(0.9, 0.99), eps=1e-18)
    data = batches(tokenizer, plan)
    began, losses = time.monotonic(), []
    for step in range(plan.steps):
        gone = max(step / plan.steps, (time.monotonic() - began) / (60 * plan.minutes))
        if gone >= 1:
            break
        rate = plan.last_rate + (plan.rate - plan.last_rate) * 0.5 * (1 + math.cos(math.pi * gone))
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / plan.warm_up) * group["times"]
        loss = loss_of(network, *(t.to(plan.device) for t in next(data)))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    save(network, folder, {"steps": len(losses), "seconds": time.monotonic() - began, "loss": losses[-1], "plan": vars(plan)})
    return losses


def loss_of(network: Network, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy of the answers: tokens [B, T], wanted [B, T] bool where the token is part of an answer."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        logits = network(tokens[:, :-1])
    return functional.cross_entropy(logits[wanted[:, 1:]].float(), tokens[:, 1:][wanted[:, 1:]])


def batches(tokenizer: Tokenizer, plan: Plan) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens [B, T] padded with the end, and which of them are answers, the end after each included."""
    rows: list[tuple[list[int], int]] = []
    for sample in stream(plan.seed + 1, plan.briefs):
        row = encoded(tokenizer, sample)
        if len(row[0]) <= plan.length:
            rows.append(row)
        if len(rows) == plan.batch:
            longest = max(len(ids) for ids, _ in rows)
            tokens = torch.tensor([ids + [END] * (longest - len(ids)) for ids, _ in rows])
            place = torch.arange(longest)
            begins, ends = (torch.tensor(x).unsqueeze(1) for x in ([begin for _, begin in rows], [len(ids) for ids, _ in rows]))
            yield tokens, (place >= begins) & (place < ends)
            rows = []


def encoded(tokenizer: Tokenizer, sample: Sample) -> tuple[list[int], int]:
    """Tokens of a sample with the end, and where its answer begins."""
    prompt = tokenizer.encode(sample.prompt)
    return [*prompt, *tokenizer.encode(sample.answer), END], len(prompt)


def save(network: Network, folder: Path, about: dict[str, object]) -> None:
    """As `assistant.weights` reads it, and how it was made."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.canonical().items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "rwkv7"}))
    (folder / "training.json").write_text(json.dumps(about, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the assistant's own model.")
    parser.add_argument("folder", type=Path)
    for name, default in vars(Plan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"default {default}")
    given = vars(parser.parse_args())
    train(Plan(**{name: value for name, value in given.items() if name != "folder"}), given["folder"])


if __name__ == "__main__":
    main()
