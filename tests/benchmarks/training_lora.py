"""Measure training of small matrices beside a frozen model of Llama-3-8B's shape."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.serving.families import config_of
from gpudeck.accel.serving.tiny import SHAPES
from gpudeck.accel.training.adapters import adapt
from gpudeck.accel.training.model import LanguageModel
from gpudeck.accel.training.ranks import count_ranks, rank_of
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shapes import flops
from gpudeck.accel.workloads.train import join_ranks
from tests.benchmarks.training_peers import peft_steps
from tests.benchmarks.training_runs import (
    Ear,
    Turn,
    compare,
    forget,
    gibibytes,
    operations,
    run_of,
    say,
    wanted,
    write,
)
from tests.benchmarks.training_trl import trl_turns


def config_json(name: str) -> dict[str, Any]:
    """Return the config.json of a shape."""
    return {
        **SHAPES[name], "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip


class Random:
    """Begin with random weights, drawn where they are used."""

    fingerprint = ""

    def __init__(self, name: str, settings: Settings) -> None:
        self.raw, self._settings = config_json(name), settings
        self.config = config_of(self.raw, name, ())

    def make(self, device: torch.device, frozen: torch.dtype) -> LanguageModel:
        """Return the frozen model with its small matrices."""
        s = self._settings
        torch.set_default_dtype(frozen)
        with torch.device(device):
            model = LanguageModel(self.config, s.tokens, recompute=s.recompute)
        torch.set_default_dtype(torch.float32)
        generator = torch.Generator(device).manual_seed(0)  # alike in all processes
        for weight in model.parameters():
            mean = 1.0 if weight.dim() == 1 else 0.0
            torch.nn.init.normal_(weight, mean, 0.02, generator=generator)
        adapt(model, s, device)
        return model


def lora(args: argparse.Namespace) -> None:
    """Write training_lora.csv: ours, transformers with peft, and TRL's trainer with peft."""
    shape = {"model": args.model, "batch": 1, "tokens": args.tokens}
    given: dict[str, Any] = {
        "batch": 1, "tokens": args.tokens, "method": "lora", "base": "random",
    }  # fmt: skip
    raw = config_json(args.model)
    per_token = flops(config_of(raw, args.model, ()), args.tokens, frozen=True)

    def ours(*, quantize: bool) -> Iterator[object]:
        kept = {**given, "quantize": quantize}
        start = Random(args.model, Settings(**kept))
        return run_of(args.folder / "lora", Ear(), start, **kept).steps()  # type: ignore[arg-type]

    contenders = {
        "ours": partial(ours, quantize=False),
        "ours, frozen matrices in 4 bits": partial(ours, quantize=True),
        "peft": partial(peft_steps, raw, args.tokens, find_device().torch_device),
    }
    for name, steps in wanted(args, contenders).items():
        compare(args, "training_lora", {name: steps}, shape, lambda _: per_token)
        forget([])
    for attention, liger in (("sdpa", False), ("sdpa", True), ("flash_attention_4", False)):
        name = f"TRL, {attention}" + (", liger-kernel" if liger else "")
        if not wanted(args, {name: attention}):
            continue
        try:
            turns = trl_turns(
                raw, args.tokens, args.rounds, args.steps, args.folder, attention, liger=liger
            )
        except Exception as e:  # noqa: BLE001 - a contender that fails must not end the others
            say(f"{name} FAILED: {type(e).__name__}: {str(e)[:300]}")
            continue
        write(args, "training_lora", shape, name, turns, args.tokens, per_token)
        forget([])


def long(args: argparse.Namespace) -> None:
    """Write training_long.csv: one sequence, whose tokens the processes of torchrun divide.

    A row is written after each step; the first step also compiles kernels.
    """
    join_ranks()
    shape = {"model": args.model, "batch": args.batch, "tokens": args.tokens}
    given: dict[str, Any] = {
        "batch": args.batch, "tokens": args.tokens, "method": "lora", "base": "random",
        "split": "tokens", "recompute": True, "compile": False, "documents": False,
    }  # fmt: skip
    start = Random(args.model, Settings(**given))
    ear, turns = Ear(), []
    run = run_of(args.folder / f"long-{rank_of()}", ear, start, **given)  # type: ignore[arg-type]
    began = time.perf_counter()
    for _ in itertools.islice(run.steps(), args.steps):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        turns.append(Turn(time.perf_counter() - began, None))
        about = {**shape, "gpus": count_ranks(), "gib": gibibytes()}
        tokens = args.batch * args.tokens
        write(args, "training_long", about, "ours, LoRA", turns, tokens, operations(run))
        began = time.perf_counter()
