"""FP8 linear layers on a GPU: speed beside bf16 and torchao, and the loss of a small GPT.

    python -m tests.benchmarks.precision --out FOLDER [--steps 300] [--seeds 3]

A layer is timed forward and backward, rounding included, uncompiled; torchao's layers also as
torch.compile makes them, which is how they are meant. The GPT (124M parameters) learns text that is
made here: a Markov chain over 50,304 tokens with frequencies by Zipf's law.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from accel.precision.conversion import convert
from accel.precision.history import update_scales
from accel.precision.linear import RECIPES
from accel.precision.transformer import TransformerLayer
from accel.runtime.timing import measure_in_turn
from tests.benchmarks.rows import RESULTS, context, spread, write

SHAPES = ((8192, 4096, 4096), (8192, 4096, 14336), (8192, 14336, 4096), (16384, 8192, 8192))
"""Rows, inputs and outputs."""
CUDA = torch.device("cuda", 0)
VOCABULARY, TOKENS, BATCH = 50304, 1024, 16
WIDTH, HEADS, DEPTH = 768, 12, 12
FOLLOWERS = 64


def torchao_layers(layer: nn.Linear) -> Iterator[tuple[str, nn.Module]]:
    """Yield torchao's layers by recipe, compiled."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    for recipe in ("tensorwise", "rowwise"):
        config = Float8LinearConfig.from_recipe_name(recipe)
        made = convert_to_float8_training(nn.Sequential(copy.deepcopy(layer)), config=config)
        yield f"torchao {recipe}", torch.compile(made)


def layers(seconds: float, peers: bool) -> Iterator[dict[str, object]]:
    """Time linear layers, all contenders of a shape in turns."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    for rows, inputs, outputs in SHAPES:
        plain = nn.Linear(inputs, outputs, bias=False, device=CUDA, dtype=torch.bfloat16)
        x = torch.randn(rows, inputs, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
        dout = torch.randn(rows, outputs, device=CUDA, dtype=torch.bfloat16)
        made: dict[str, nn.Module] = {"bf16": plain}
        for recipe in RECIPES:
            made[recipe] = convert(copy.deepcopy(plain), recipe)
        layer = made["delayed"]
        layer(x)
        update_scales(layer)
        if peers:
            try:
                made |= dict(torchao_layers(plain))
            except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
                print("torchao:", f"{type(e).__name__}: {e}"[:200], flush=True)
        ready = {name: _step(one, x, dout) for name, one in made.items()}
        exact = [t.double() for t in ready["bf16"]()]
        errors, able = {}, {}
        for name, call in ready.items():
            try:
                got = call()
                call()
                errors[name] = max(
                    float((g.double() - e).norm() / e.norm())
                    for g, e in zip(got, exact, strict=True)
                )
                able[name] = call
            except Exception as e:  # noqa: BLE001 - the others are measured all the same
                print("refused:", name, f"{type(e).__name__}: {e}"[:300], flush=True)
        loops = measure_in_turn(list(able.values()), seconds, CUDA, lambda *_: None, lambda _: None)
        ms = {name: spread(m.samples_ms) for name, m in zip(able, loops, strict=True)}
        base = ms["bf16"]["median"]
        for name, found in ms.items():
            tflops = 6.0 * rows * inputs * outputs / found["median"] / 1e9
            yield {
                **where, "rows": rows, "inputs": inputs, "outputs": outputs, "layer": name,
                "ms": found["median"], "p95_ms": found["p95"], "count": found["count"],
                "tflops": f"{tflops:.0f}", "times_bf16": f"{base / found['median']:.3f}",
                "difference_to_bf16": f"{errors[name]:.2e}",
            }  # fmt: skip
        times = {name: f"{base / found['median']:.2f}" for name, found in ms.items()}
        print(rows, inputs, outputs, times, flush=True)


def _step(layer: nn.Module, x: Tensor, dout: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    parameters = list(layer.parameters())

    def run() -> tuple[Tensor, ...]:
        out = layer(x)
        return (out.detach(), *torch.autograd.grad(out, [x, *parameters], dout))

    return run


class Gpt(nn.Module):
    """A GPT of 124M parameters; the output layer shares the embedding and stays in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.Sequential(
            *(TransformerLayer(WIDTH, HEADS, 4 * WIDTH) for _ in range(DEPTH))
        )
        self.norm = nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of predicting each next token."""
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        x = self.embedding(tokens[:, :-1]) + self.position(places)
        x = self.norm(self.layers(x.bfloat16()))
        scores = functional.linear(x, self.embedding.weight.bfloat16())
        return functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


def text(seed: int) -> Callable[[], Tensor]:
    """Return a function that draws batches of tokens [BATCH, TOKENS + 1]."""
    fixed = torch.Generator(CUDA).manual_seed(1)
    often = 1.0 / torch.arange(1, VOCABULARY + 1, device=CUDA)
    followers = torch.multinomial(often, VOCABULARY * FOLLOWERS, True, generator=fixed)
    followers = followers.view(VOCABULARY, FOLLOWERS)
    weights = 1.0 / torch.arange(1, FOLLOWERS + 1, device=CUDA)
    drawn = torch.Generator(CUDA).manual_seed(seed)

    def batch() -> Tensor:
        picks = torch.multinomial(weights, BATCH * (TOKENS + 1), True, generator=drawn)
        columns = picks.view(TOKENS + 1, BATCH)
        token = torch.multinomial(often, BATCH, True, generator=drawn)
        found = [token]
        for step in columns[1:]:
            token = followers[token, step]
            found.append(token)
        return torch.stack(found, 1)

    return batch


def trained(recipe: str, seed: int, batches: list[Tensor], held: list[Tensor]) -> dict[str, Any]:
    """Train from one seed; return the losses and the time."""
    torch.manual_seed(seed)
    model = Gpt().to(CUDA)
    if recipe != "bf16":
        convert(model.layers, recipe)
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, (0.9, 0.95), fused=True)
    losses, began = [], time.perf_counter()
    for step, tokens in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1.0, (step + 1) / 50, 0.1 + 2 * (1 - step / len(batches)))
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update_scales(model)
        losses.append(loss.detach())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        final = float(torch.stack([model(tokens) for tokens in held]).mean())
    return {"seconds": seconds, "held_out_loss": final, "losses": torch.stack(losses).tolist()}


def gpt(
    steps: int, seeds: int, recipes: tuple[str, ...], until: float
) -> Iterator[dict[str, object]]:
    """Train with each recipe from each seed on the same text."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    draw = text(0)
    held = [draw() for _ in range(8)]
    for seed in range(seeds):
        draw = text(seed + 10)
        batches = [draw() for _ in range(steps)]
        base: dict[str, Any] = {}
        for recipe in ("bf16", *recipes):
            if time.monotonic() > until:
                return
            found = trained(recipe, seed, batches, held)
            base = found if recipe == "bf16" else base
            row = {
                **where, "recipe": recipe, "seed": seed, "steps": steps,
                "tokens": steps * BATCH * TOKENS, "seconds": f"{found['seconds']:.2f}",
                "held_out_loss": f"{found['held_out_loss']:.4f}",
                "loss_of_bf16": f"{found['held_out_loss'] / base['held_out_loss']:.4f}",
                "first_loss": f"{found['losses'][0]:.3f}",
            }  # fmt: skip
            print({k: v for k, v in row.items() if k not in where}, flush=True)
            yield row


def main() -> None:
    """Measure and write fp8_linear.csv and fp8_gpt.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", default="row,block")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    found = []
    for row in layers(given.seconds, not given.no_peers):
        found.append(row)
        write("fp8_linear", found, given.out)
    found = []
    for row in gpt(given.steps, given.seeds, tuple(given.recipes.split(",")), until):
        found.append(row)
        write("fp8_gpt", found, given.out)


if __name__ == "__main__":
    main()
