"""Train the assistant's own model, from nothing or from what is trained already, and save it as a folder that the assistant loads.

python -m assistant.training.data FOLDER                                   # once, on a CPU: the samples
python -m assistant.training.train FOLDER --device cuda --minutes 8        # --resume goes on from the last checkpoint
python -m assistant.training.train FOLDER --device cuda --minutes 3 --start assets/rwkv7-deck-13m --rate 5e-4 --warm-up 100
                                                                           # samples made with that model's vocabulary in FOLDER
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from accel.rwkv import weights
from accel.rwkv.tokenizer import VOCABULARY, Tokenizer
from assistant.training import huggingface
from assistant.training.data import DATA, HELD_OUT, Batch, Pool
from assistant.training.network import Network
from assistant.writing.compact import MARK
from scheduler.protocol.errors import NotFound, UserError

CHECKPOINT = "checkpoint.pt"
MODEL, ABOUT = "model.safetensors", "training.json"
AVERAGE = 0.99
"""What is saved is the moving average of the weights over about a hundred steps: while the rate is high it is better than any of them, so
that a run that is cut off leaves a good model, too."""


@dataclass(frozen=True)
class Plan:
    """What is trained, and for how long: until the minutes are over (set-up included) or the steps are done."""

    layers: int = 8
    channels: int = 320
    rows: int = 256
    """Samples of a step at most."""
    tokens: int = 32_768
    """Tokens of a step at most, padding included."""
    steps: int = 1_000_000
    minutes: float = 8.0
    rate: float = 1e-3
    last_rate: float = 2e-5
    warm_up: int = 200
    decay: float = 0.1
    every: float = 60.0
    """Seconds between two checkpoints, each with a look at what is held out."""
    device: str = "cpu"
    seed: int = 1
    start: str = ""
    """A folder with a model of this shape and vocabulary, whose weights are begun with: give a lower rate, too; empty: none."""
    resume: bool = False
    """Go on from the checkpoint in the folder, as if it had never been interrupted but for the order of the samples."""


class Trainer:
    """A network and its optimiser, as they are trained."""

    def __init__(self, plan: Plan, folder: Path, began: float) -> None:
        """Raises NotFound where the folder has no samples, no model to start from, or no checkpoint to go on from; UserError where that
        model is another."""
        self.plan, self.folder, self._began = plan, folder, began
        if not (folder / DATA).is_file():
            raise NotFound(
                f"no samples in {folder}: make them with `python -m assistant.training.data {folder}`"
            )
        torch.manual_seed(plan.seed)
        torch.set_float32_matmul_precision(
            "high"
        )  # TF32 on a GPU: the recurrence's products have no need of more
        self.data, self.held_out = Pool.load(folder / DATA), Pool.load(folder / HELD_OUT)
        self.network = Network(plan.layers, plan.channels, Tokenizer.load(folder).size)
        self.before = self._start(Path(plan.start)) if plan.start else None
        """How the model that this one started from was made: what its training.json says."""
        self.network.to(plan.device)
        fused = self.network.canonical()["emb.weight"].is_cuda
        self.optimiser = torch.optim.AdamW(
            self.network.groups(plan.rate, plan.decay), betas=(0.9, 0.99), eps=1e-18, fused=fused
        )
        self.averaged = copy.deepcopy(self.network)
        self.losses: list[Tensor] = []
        """Of each step, left on the device: reading one waits for the GPU."""
        self.seen = 0
        """Tokens, padding left out."""
        self.earlier = 0.0
        """Seconds trained before this run."""
        if plan.resume:
            self._resume()

    @property
    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self._began

    def run(self) -> None:
        """Until the plan is fulfilled."""
        plan, shown, saved = self.plan, len(self.losses), self.seconds
        data = self.data.batches(
            np.random.default_rng(plan.seed + len(self.losses)), plan.rows, plan.tokens
        )
        while (gone := max(len(self.losses) / plan.steps, self.seconds / (60 * plan.minutes))) < 1:
            self._step(next(data), gone)
            if len(self.losses) in (1, 10) or len(self.losses) % 100 == 0:
                self._show(shown)
                shown = len(self.losses)
            if self.seconds - saved > plan.every:
                self.checkpoint()
                saved = self.seconds

    def _step(self, batch: Batch, gone: float) -> None:
        plan = self.plan
        rate = plan.last_rate + (plan.rate - plan.last_rate) * 0.5 * (1 + math.cos(math.pi * gone))
        for group in self.optimiser.param_groups:
            group["lr"] = rate * min(1.0, (len(self.losses) + 1) / plan.warm_up) * group["times"]
        loss = functional.cross_entropy(*self._told(self.network, batch))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self._average()
        self.losses.append(loss.detach())
        self.seen += int((batch.tokens != 0).sum())

    @torch.no_grad()
    def _average(self) -> None:
        """At first over fewer steps: the weights that training began with are worth nothing."""
        steps = len(self.losses)
        for mean, now in zip(self.averaged.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(now, 1 - min(AVERAGE, (1 + steps) / (10 + steps)))

    def _told(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits [N, V] where an answer's tokens follow, and these tokens [N]."""
        tokens, at, wanted = (
            torch.from_numpy(array).to(self.plan.device, non_blocking=True) for array in batch
        )
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            logits = network(tokens, at)
        return logits.float(), wanted

    def _show(self, since: int) -> None:
        loss, seconds = torch.stack(self.losses[since:]).mean().item(), self.seconds
        print(
            f"step {len(self.losses)}: loss {loss:.4f}, {seconds:.0f} s, {self.seen / seconds:.0f} tokens/s",
            flush=True,
        )

    @torch.no_grad()
    def look(self) -> dict[str, float]:
        """Over the held-out requests: the loss, and the share of them whose routes greedy decoding gets right to the last token."""
        loss, right, answers = 0.0, 0, 0
        for rows in _in_order(self.held_out, self.plan.tokens):
            batch = self.held_out.batch(rows)
            logits, wanted = self._told(self.averaged, batch)
            sample = batch.at // batch.tokens.shape[1]
            wrong = np.unique(sample[(logits.argmax(dim=-1) != wanted).cpu().numpy()])
            loss += functional.cross_entropy(logits, wanted, reduction="sum").item()
            right, answers = right + len(rows) - len(wrong), answers + len(wanted)
        return {"held-out loss": loss / answers, "held-out exact": right / len(self.held_out)}

    def checkpoint(self) -> None:
        """Keep what `--resume` goes on from, and the model as it is."""
        state = {
            "network": self.network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        far = {"seconds": self.seconds, "seen": self.seen, "losses": torch.stack(self.losses)}
        torch.save(state | far, self.folder / f"{CHECKPOINT}.new")
        (self.folder / f"{CHECKPOINT}.new").replace(
            self.folder / CHECKPOINT
        )  # a cut-off run never leaves half of one
        print(self.save(), flush=True)

    @torch.no_grad()
    def _start(self, trained: Path) -> object:
        for name in (MODEL, VOCABULARY, ABOUT):
            if not (trained / name).is_file():
                raise NotFound(f"no {name} in {trained} to start from: train without --start")
        if (trained / VOCABULARY).read_bytes() != (self.folder / VOCABULARY).read_bytes():
            raise UserError(
                f"the model in {trained} has another vocabulary: make the samples with its {VOCABULARY}"
            )
        stored, mine = weights.load(trained), self.network.canonical()
        if {name: tensor.shape for name, tensor in stored.items()} != {
            name: tensor.shape for name, tensor in mine.items()
        }:
            raise UserError(
                f"the model in {trained} has another shape: give its --layers and --channels"
            )
        for name, tensor in mine.items():
            tensor.copy_(stored[name])
        return json.loads((trained / ABOUT).read_text())

    def _resume(self) -> None:
        if not (self.folder / CHECKPOINT).is_file():
            raise NotFound(f"no checkpoint in {self.folder} to go on from: train without --resume")
        state = torch.load(
            self.folder / CHECKPOINT, map_location=self.plan.device, weights_only=True
        )
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.losses, self.seen, self.earlier = (
            list(state["losses"].unbind()),
            state["seen"],
            state["seconds"],
        )
        self.before = json.loads((self.folder / ABOUT).read_text()).get("before")

    def save(self) -> dict[str, float]:
        """As Hugging Face lays it out, in half precision, with how it was made in training.json. Returns `look()`."""
        tensors = {
            name: tensor.detach().half().cpu().contiguous()
            for name, tensor in self.averaged.canonical().items()
        }
        save_file(
            huggingface.layout(tensors), new := self.folder / f"{MODEL}.new", {"format": "pt"}
        )
        new.replace(self.folder / MODEL)
        (self.folder / "config.json").write_text(
            json.dumps(huggingface.config(tensors) | {"prompts": MARK}, indent=1)
        )
        about = {
            "steps": len(self.losses),
            "seconds": self.seconds,
            "loss": torch.stack(self.losses[-100:]).mean().item(),
            **self.look(),
        }
        sizes = {
            "parameters": sum(t.numel() for t in tensors.values()),
            "samples": len(self.data),
            "tokens seen": self.seen,
        }
        device = torch.cuda.get_device_name() if next(self.network.parameters()).is_cuda else "CPU"
        plan = vars(self.plan) | {"start": Path(self.plan.start).name}
        made = {"device": device, "plan": plan} | ({"before": self.before} if self.before else {})
        (self.folder / ABOUT).write_text(json.dumps({**about, **sizes, **made}, indent=1))
        return about


def train(plan: Plan, folder: Path) -> list[float]:
    """The losses of all steps; the folder, which holds the samples, then has model.safetensors, config.json and training.json."""
    trainer = Trainer(plan, folder, time.monotonic())
    trainer.run()
    trainer.checkpoint()
    return [float(loss) for loss in torch.stack(trainer.losses)]


def _in_order(pool: Pool, tokens: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    order = np.argsort(pool.lengths, kind="stable")
    size = max(1, tokens // int(pool.lengths.max()))
    yield from (order[start : start + size] for start in range(0, len(order), size))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the assistant's own model.")
    parser.add_argument("folder", type=Path)
    for name, default in vars(Plan()).items():
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                type=type(default),
                default=default,
                help=f"default {default}",
            )
    given = vars(parser.parse_args())
    train(
        Plan(**{name: value for name, value in given.items() if name != "folder"}), given["folder"]
    )


if __name__ == "__main__":
    main()
