"""Train the assistant's own model, and save it as a folder that the assistant loads.

Make the samples once, on a CPU. `--resume` continues from the last checkpoint. `--start` begins
with a trained model, in a folder with samples that were made with its vocabulary.

    python -m assistant.training.data FOLDER
    python -m assistant.training.train FOLDER --device cuda --minutes 8
    python -m assistant.training.train FOLDER --device cuda --minutes 3 \\
        --start assets/rwkv7-deck-13m --rate 5e-4 --warm-up 100
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
"""The weight of the moving average of the weights, over about a hundred steps. It is what is saved:
at a high rate it is better than any of them, so that an interrupted run leaves a good model as
well.
"""


@dataclass(frozen=True)
class Plan:
    """Describe what is trained, and for how long: until the minutes, with set-up, or the steps are
    over.
    """

    layers: int = 8
    channels: int = 320
    rows: int = 256
    """The most samples of a step."""
    tokens: int = 32_768
    """The most tokens of a step, with padding."""
    steps: int = 1_000_000
    minutes: float = 8.0
    rate: float = 1e-3
    last_rate: float = 2e-5
    warm_up: int = 200
    decay: float = 0.1
    every: float = 60.0
    """Seconds between two checkpoints, each with an evaluation on held-out requests."""
    device: str = "cpu"
    seed: int = 1
    start: str = ""
    """A folder with a model of this shape and vocabulary to start from, at a lower rate; empty for
    none.
    """
    resume: bool = False
    """Continue from the folder's checkpoint, as if never interrupted except for the order of
    samples.
    """


class Trainer:
    """Train a network with its optimiser."""

    def __init__(self, plan: Plan, folder: Path, began: float) -> None:
        """Load what the plan needs.

        Raises:
            NotFound: The folder has no samples, no model to start from, or no checkpoint.
            UserError: The model to start from has another shape or vocabulary.
        """
        self.plan, self.folder, self._began = plan, folder, began
        if not (folder / DATA).is_file():
            raise NotFound(
                f"no samples in {folder}: make them with `python -m assistant.training.data "
                f"{folder}`"
            )
        torch.manual_seed(plan.seed)
        torch.set_float32_matmul_precision(
            "high"
        )  # TF32 on a GPU is enough for the recurrence's products.
        self.data, self.held_out = Pool.load(folder / DATA), Pool.load(folder / HELD_OUT)
        self.network = Network(plan.layers, plan.channels, Tokenizer.load(folder).size)
        self.before = self._start(Path(plan.start)) if plan.start else None
        """The training.json of the model that this one started from."""
        self.network.to(plan.device)
        fused = self.network.canonical()["emb.weight"].is_cuda
        self.optimiser = torch.optim.AdamW(
            self.network.groups(plan.rate, plan.decay), betas=(0.9, 0.99), eps=1e-18, fused=fused
        )
        self.averaged = copy.deepcopy(self.network)
        self.losses: list[Tensor] = []
        """The loss of each step, left on the device, because reading it waits for the GPU."""
        self.seen = 0
        """The tokens trained on, without padding."""
        self.earlier = 0.0
        """The seconds trained before this run."""
        if plan.resume:
            self._resume()

    @property
    def seconds(self) -> float:
        """Return the seconds trained so far."""
        return self.earlier + time.monotonic() - self._began

    def run(self) -> None:
        """Train until the plan is fulfilled."""
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
        loss = functional.cross_entropy(*self._answer_logits(self.network, batch))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self._average()
        self.losses.append(loss.detach())
        self.seen += int((batch.tokens != 0).sum())

    @torch.no_grad()
    def _average(self) -> None:
        """Average over fewer steps at first, because the initial weights are worthless."""
        steps = len(self.losses)
        for mean, now in zip(self.averaged.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(now, 1 - min(AVERAGE, (1 + steps) / (10 + steps)))

    def _answer_logits(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits [N, V] at an answer's tokens, and these tokens [N]."""
        tokens, at, wanted = (
            torch.from_numpy(array).to(self.plan.device, non_blocking=True) for array in batch
        )
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            logits = network(tokens, at)
        return logits.float(), wanted

    def _show(self, since: int) -> None:
        loss, seconds = torch.stack(self.losses[since:]).mean().item(), self.seconds
        print(
            f"step {len(self.losses)}: loss {loss:.4f}, {seconds:.0f} s, "
            f"{self.seen / seconds:.0f} tokens/s",
            flush=True,
        )

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the loss on held-out requests, and the share that greedy decoding routes
        correctly.
        """
        loss, right, answers = 0.0, 0, 0
        for rows in _in_order(self.held_out, self.plan.tokens):
            batch = self.held_out.batch(rows)
            logits, wanted = self._answer_logits(self.averaged, batch)
            sample = batch.at // batch.tokens.shape[1]
            wrong = np.unique(sample[(logits.argmax(dim=-1) != wanted).cpu().numpy()])
            loss += functional.cross_entropy(logits, wanted, reduction="sum").item()
            right, answers = right + len(rows) - len(wrong), answers + len(wanted)
        return {"held-out loss": loss / answers, "held-out exact": right / len(self.held_out)}

    def checkpoint(self) -> None:
        """Save what `--resume` continues from, and the current model."""
        state = {
            "network": self.network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        far = {"seconds": self.seconds, "seen": self.seen, "losses": torch.stack(self.losses)}
        torch.save(state | far, self.folder / f"{CHECKPOINT}.new")
        (self.folder / f"{CHECKPOINT}.new").replace(
            self.folder / CHECKPOINT
        )  # Renaming never leaves half a file.
        print(self.save(), flush=True)

    @torch.no_grad()
    def _start(self, trained: Path) -> object:
        for name in (MODEL, VOCABULARY, ABOUT):
            if not (trained / name).is_file():
                raise NotFound(f"no {name} in {trained} to start from: train without --start")
        if (trained / VOCABULARY).read_bytes() != (self.folder / VOCABULARY).read_bytes():
            raise UserError(
                f"the model in {trained} has another vocabulary: make the samples with its "
                f"{VOCABULARY}"
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
        """Save the model in half precision in Hugging Face's layout, with training.json; return
        `evaluate()`.
        """
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
            **self.evaluate(),
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
    """Train, and return the losses of all steps.

    The folder holds the samples, and then model.safetensors, config.json and training.json.
    """
    trainer = Trainer(plan, folder, time.monotonic())
    trainer.run()
    trainer.checkpoint()
    return [float(loss) for loss in torch.stack(trainer.losses)]


def _in_order(pool: Pool, tokens: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    order = np.argsort(pool.lengths, kind="stable")
    size = max(1, tokens // int(pool.lengths.max()))
    yield from (order[start : start + size] for start in range(0, len(order), size))


def main() -> None:
    """Train a model from the command line."""
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
