"""Compare the losses of ours and of plain torch on a real text: the documentation in the sources of
the installed packages."""

from __future__ import annotations

import argparse
import re
import statistics
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.training.api import open_data
from gpudeck.accel.training.batches import Batches
from gpudeck.accel.training.fp8 import use_fp8
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.optimizer import BETAS, rate_at
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.tokenizers import ByteTokenizer
from tests.benchmarks import rows
from tests.benchmarks.training_peers import Plain
from tests.benchmarks.training_runs import Ear, forget, run_of, say, wanted

_DOCUMENTATION = re.compile(rb'"""(.{200,20000}?)"""', re.DOTALL)
_MOST = 16 * 2**20
"""The bytes of text."""
_MEAN = 20
"""The steps whose losses make one point of a curve."""


def curves(args: argparse.Namespace) -> None:
    """Write training_curves.csv: the losses of plain torch, of ours, and of ours in FP8 and with
    moments in 8 bits, for some seeds, each beginning with the same weights and in the same order.
    """
    args.folder.mkdir(parents=True, exist_ok=True)
    text = args.folder / "documentation.txt"
    collect(text)
    for seed in range(args.first, args.first + args.rounds):
        for name, more in wanted(args, variants()).items():
            run = prepared(args, text, seed, **more)
            if not more and wanted(args, {"plain torch": None}):
                record(args, seed, "plain torch", plain_losses(run))
            if run.settings.precision == "fp8":
                run.fp8 = all_products(run)
                use_fp8(run.model, run.fp8)
            record(args, seed, name, ours_losses(run))
            made = [run]
            del run
            forget(made)


def variants() -> dict[str, dict[str, str]]:
    """Return the ways in which ours trains, by name; the first one is what others are beside."""
    found: dict[str, dict[str, str]] = {"ours": {}}
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        found["ours, all products of layers in FP8"] = {"precision": "fp8"}
    return {**found, "ours, moments in 8 bits": {"moments": "8bit"}}


def collect(file: Path) -> None:
    """Write the documentation in the installed packages' sources into a file, 16 MiB at most."""
    found, size = [], 0
    for source in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        for match in _DOCUMENTATION.finditer(source.read_bytes()):
            text = match.group(1).decode(errors="ignore").encode()
            found.append(text)
            size += len(text)
        if size > _MOST:
            break
    file.write_bytes(b"\n\n".join(found)[:_MOST])


def prepared(args: argparse.Namespace, text: Path, seed: int, **more: str) -> Run:
    """Return a run of ours on the text, ready for its first step."""
    on_gpu = find_device().kind == "cuda"
    given = {
        "model": args.model, "batch": args.batch, "tokens": args.tokens, "seed": seed,
        "steps": args.steps, "held_out": 0.01, "precision": "bfloat16" if on_gpu else "float32",
        "compile": args.compiled and on_gpu, **more,
    }  # fmt: skip
    settings = Settings(**given, data=str(text), documents=False)
    tokenizer = ByteTokenizer()
    data = open_data(settings, tokenizer, lambda *_: None)
    batches = Batches(data, settings)
    return run_of(args.folder / "curves", Ear(), tokenizer=tokenizer, batches=batches, **given)


def all_products(run: Run) -> tuple[str, ...]:
    """Return the sizes of all products in the layers of a run."""
    linear = [part for part in run.model.modules() if isinstance(part, nn.Linear)]
    widths = {part.in_features for part in linear}
    heights = {part.out_features for part in linear}
    sums = {count * height for height in heights for count in (1, 2, 3)}
    return tuple(f"{n}x{m}" for n in widths for m in sums)


def ours_losses(run: Run) -> Iterator[float]:
    """Yield the loss of each step of ours, then the held-out loss."""
    run.train()
    for row in run.journal.rows:
        if row.loss is not None:
            yield row.loss
    yield run.journal.rows[-1].held_out or 0.0


def plain_losses(run: Run) -> Iterator[float]:
    """Yield the loss of each step of plain torch with the weights and batches of a run that has
    not begun, then the held-out loss."""
    s, device = run.settings, run.device.torch_device
    with torch.device(device):
        model = Plain(s.model, run.start.config.vocabulary, s.tokens)
    take_weights(model, run)
    vectors = [w for w in model.parameters() if w.dim() == 1]
    matrices = [w for w in model.parameters() if w.dim() > 1]
    groups = [
        {"params": matrices, "weight_decay": s.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, s.highest_rate, BETAS, fused=True)
    call = torch.compile(model) if s.compile else model
    losses = []
    for step in range(s.steps):
        batch = run.batches.batch(step)
        x, y = (torch.from_numpy(a).to(device) for a in (batch.tokens, batch.targets))
        with torch.autocast(device.type, torch.bfloat16, enabled=s.precision != "float32"):
            loss = call(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), s.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, s)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    yield from torch.stack(losses).tolist()
    total, count = 0.0, 0
    for batch in run.batches.held_out():
        x, y = (torch.from_numpy(a).to(device) for a in (batch.tokens, batch.targets))
        with (
            torch.no_grad(),
            torch.autocast(device.type, torch.bfloat16, enabled=s.precision != "float32"),
        ):
            total += float(model(x, y)) * batch.learned
        count += batch.learned
    yield total / count


@torch.no_grad()
def take_weights(model: Plain, run: Run) -> None:
    """Give a plain model the weights of ours."""
    named = dict(run.model.named_parameters())
    model.embedding.weight.copy_(named["model.embed_tokens.weight"])
    model.norm.weight.copy_(named["model.norm.weight"])
    for i, layer in enumerate(model.layers):
        at = f"model.layers.{i}"
        for mine, theirs in {
            "first": ("input_layernorm",),
            "second": ("post_attention_layernorm",),
            "qkv": tuple(f"self_attn.{name}_proj" for name in "qkv"),
            "out": ("self_attn.o_proj",),
            "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
            "down": ("mlp.down_proj",),
        }.items():
            parts = [named[f"{at}.{name}.weight"] for name in theirs]
            layer.get_submodule(mine).get_parameter("weight").copy_(torch.cat(parts))


def record(args: argparse.Namespace, seed: int, contender: str, found: Iterator[float]) -> None:
    """Write the points of a curve, each the mean of twenty steps, and the held-out loss."""
    *losses, held_out = found
    about = {
        "model": args.model, "batch": args.batch, "tokens": args.tokens, "steps": args.steps,
        "seed": seed, "contender": contender,
    }  # fmt: skip
    said = rows.context(str(find_device()), ("torch", "triton"))
    points = [
        {**about, "until": at + _MEAN, "loss": f"{statistics.mean(losses[at : at + _MEAN]):.5f}"}
        for at in range(0, len(losses) - _MEAN + 1, _MEAN)
    ]
    points.append({**about, "until": "held out", "loss": f"{held_out:.5f}"})
    say(f"{contender}, seed {seed}: {points[-2]['loss']}, held out {held_out:.5f}")
    keys = (*about, "until", "device")
    rows.merge("training_curves", [{**p, **said} for p in points], keys, args.results)
