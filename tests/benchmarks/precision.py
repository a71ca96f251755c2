"""FP8 linear layers on a GPU: speed beside bf16 and torchao, and the loss of a small GPT.

    python -m tests.benchmarks.precision --steps 2000 --seeds 3 --batch 4 --length 256 --out FOLDER

A layer is timed forward and backward, rounding included: as it is, as torch.compile makes it (which
is how torchao's layers are meant), and captured as one CUDA graph. The GPT (124M parameters) learns
text that is made here: a Markov chain over 50,304 tokens with frequencies by Zipf's law. A step of
training is one CUDA graph, so that the host's time does not count. Transformer layers are timed
with norms and activations computed by the kernels that round, and before them.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck import accel
from gpudeck.accel.precision.conversion import convert
from gpudeck.accel.precision.history import update_scales
from gpudeck.accel.precision.layers import Fp8Linear
from gpudeck.accel.precision.linear import RECIPES
from gpudeck.accel.precision.selection import dynamic_precision_select
from gpudeck.accel.precision.transformer import TransformerLayer, transformer_engine_layer
from gpudeck.accel.runtime import power
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.timing import measure_in_turn
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, spread, write

SHAPES = (
    (8192, 4096, 4096), (8192, 4096, 14336), (8192, 14336, 4096), (16384, 8192, 8192),
    (16384, 768, 3072), (2048, 2048, 2048),
)  # fmt: skip
"""Rows, inputs and outputs; the last two are too small to gain."""
CUDA = torch.device("cuda", 0)
VOCABULARY, LONGEST = 50304, 1024
WIDTH, HEADS, DEPTH = 768, 12, 12
FOLLOWERS = 64


def torchao_layers(layer: nn.Linear) -> Iterator[tuple[str, nn.Module]]:
    """Yield torchao's layers by recipe, compiled."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    for recipe in ("tensorwise", "rowwise"):
        config = Float8LinearConfig.from_recipe_name(recipe)
        made = convert_to_float8_training(nn.Sequential(copy.deepcopy(layer)), config=config)
        yield f"torchao {recipe}", torch.compile(made)


def selected(plain: nn.Linear, x: Tensor) -> nn.Module:
    """Return the layer as `dynamic_precision_select` leaves it."""
    model = nn.Sequential(copy.deepcopy(plain))
    choice = dynamic_precision_select(model, lambda m: m(x))
    print(choice, flush=True)
    return convert(model, choice.recipe, wanted=choice)


def contenders(plain: nn.Linear, x: Tensor, peers: bool, recipes: Sequence[str]) -> dict[str, Any]:
    """Return the layer in bf16, by each recipe, and those of torchao if `peers`."""
    made: dict[str, nn.Module] = {"bf16": plain}
    for recipe in recipes:
        layer = made[recipe] = convert(copy.deepcopy(plain), recipe)  # type: ignore[arg-type]
        layer(x)
        update_scales(layer)
        made[f"{recipe} compiled"] = torch.compile(copy.deepcopy(layer))
    made["auto"] = selected(plain, x)
    if peers:
        try:
            made |= dict(torchao_layers(plain))
        except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
            print("torchao:", f"{type(e).__name__}: {e}"[:200], flush=True)
    return made


def able(
    made: Mapping[str, nn.Module],
    x: Tensor,
    dout: Tensor,
    graphs: Sequence[str],
    step: Callable[[nn.Module, Tensor, Tensor], Callable[[], tuple[Tensor, ...]]],
) -> tuple[dict[str, Callable[[], object]], dict[str, float]]:
    """Return what runs, as calls, and how far its results are from those in bf16."""
    exact = [t.float() for t in step(made["bf16"], x, dout)()]
    calls: dict[str, Callable[[], object]] = {}
    errors = {}
    for name, layer in made.items():
        began = time.perf_counter()
        try:
            call = step(layer, x, dout)
            got = call()
            call()
            errors[name] = max(
                float((g.float() - e).norm() / e.norm()) for g, e in zip(got, exact, strict=True)
            )
            calls[name] = call
            if name in graphs:
                calls[f"{name} graph"] = Captured(call, CUDA)
                errors[f"{name} graph"] = errors[name]
        except Exception as e:  # noqa: BLE001 - the others are measured all the same
            print("refused:", name, f"{type(e).__name__}: {e}"[:300], flush=True)
        if (seconds := time.perf_counter() - began) > 1:
            print(f"  {name} was ready after {seconds:.0f} s", flush=True)
    return calls, errors


def layers(given: argparse.Namespace, until: float) -> Iterator[dict[str, object]]:
    """Time linear layers, all contenders of a shape in turns."""
    recipes = [name for name in given.layer_recipes.split(",") if name]
    for rows, inputs, outputs in SHAPES[given.skip : given.skip + given.shapes]:
        if time.monotonic() > until:
            return
        packages = ("torch", "triton") if given.no_peers else ("torch", "triton", "torchao")
        where = context(torch.cuda.get_device_name(), packages, SOURCES["fp8_linear"])
        plain = nn.Linear(inputs, outputs, bias=False, device=CUDA, dtype=torch.bfloat16)
        x = torch.randn(rows, inputs, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
        dout = torch.randn(rows, outputs, device=CUDA, dtype=torch.bfloat16)
        made = contenders(plain, x, not given.no_peers, recipes)
        calls, errors = able(made, x, dout, tuple(made), _step)
        if given.warm:
            continue
        print(rows, inputs, outputs, end=" ")
        for found in compared(calls, errors, given.seconds):
            tflops = 6.0 * rows * inputs * outputs / float(found["ms"]) / 1e9  # type: ignore[arg-type]
            yield {
                **where, "rows": rows, "inputs": inputs, "outputs": outputs, **found,
                "tflops": f"{tflops:.0f}",
            }  # fmt: skip


def compared(
    calls: Mapping[str, Callable[[], object]], errors: Mapping[str, float], seconds: float
) -> Iterator[dict[str, object]]:
    """Time calls in turns, and yield what each takes and how that compares with bf16."""
    readings: list[list[power.SensorReading]] = [[] for _ in calls]
    loops = measure_in_turn(
        list(calls.values()), seconds, CUDA, lambda *_: None,
        lambda i: readings[i].append(power.read(CUDA)),
    )  # fmt: skip
    ms = {name: spread(m.samples_ms) for name, m in zip(calls, loops, strict=True)}
    base = ms["bf16"]["median"]
    for (name, found), sensed in zip(ms.items(), readings, strict=True):
        yield {
            "layer": name, "ms": found["median"], "p95_ms": found["p95"], "count": found["count"],
            "clock_mhz": f"{power.in_turn(sensed, CUDA).sm_mhz or 0:.0f}",
            "times_bf16": f"{base / found['median']:.3f}",
            "difference_to_bf16": f"{errors[name]:.2e}",
        }  # fmt: skip
    print({name: f"{base / found['median']:.2f}" for name, found in ms.items()}, flush=True)


ENGINES: dict[str, dict[str, Any]] = {
    "llama": {"hidden": 14336, "norm": "rms", "activation": "swiglu", "kv_heads": 8},
    "gpt": {"hidden": 16384, "bias": True},
}
"""Transformer layers of 4,096 features and 32 heads: as in Llama-3-8B without its rotation of
positions, and as in a GPT."""
ENGINE_WIDTH, ENGINE_HEADS, ENGINE_TOKENS = 4096, 32, 2048


def unfused(layer: nn.Module) -> nn.Module:
    """Return a layer whose norms and activations are computed before its linear layers."""
    for name, child in list(layer.named_children()):
        if isinstance(child, Fp8Linear):
            setattr(layer, name, nn.Sequential(child))
    return layer


def engines(given: argparse.Namespace, until: float) -> Iterator[dict[str, object]]:
    """Time transformer layers, forward alone and with their gradients."""
    accel.learning("off")  # attention is the same in all of them
    for form in given.forms.split(","):
        torch.manual_seed(0)
        asked = {"device": CUDA, **ENGINES[form]}
        made = transformer_engine_layer(ENGINE_WIDTH, ENGINE_HEADS, recipe=None, **asked)
        fused = convert(copy.deepcopy(made), "row")
        apart = unfused(convert(copy.deepcopy(made), "row"))
        plain = {"bf16": made, "row unfused": apart, "row fused": fused}
        for rows in map(int, given.rows.split(",")):
            if time.monotonic() > until:
                return
            torch._dynamo.reset()
            where = context(
                torch.cuda.get_device_name(), ("torch", "triton"), SOURCES["fp8_engine"]
            )
            x = torch.randn(
                rows // ENGINE_TOKENS,
                ENGINE_TOKENS,
                ENGINE_WIDTH,
                device=CUDA,
                dtype=torch.bfloat16,
            ).requires_grad_()
            dout = torch.randn_like(x)
            compiled = {
                f"{name} compiled": torch.compile(copy.deepcopy(layer), dynamic=False)
                for name, layer in plain.items()
                if not given.uncompiled
            }
            for direction, step, layers in (
                ("training", _step, plain | compiled), ("inference", _forward, plain)
            ):  # fmt: skip
                calls, errors = able(layers, x, dout, tuple(plain), step)
                if not given.warm:
                    print(form, rows, direction, end=" ")
                    for found in compared(calls, errors, given.seconds):
                        yield {
                            **where, "form": form, "rows": rows, "direction": direction, **found
                        }  # fmt: skip


def _forward(layer: nn.Module, x: Tensor, dout: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    del dout

    def run() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (layer(x),)

    return run


def _step(layer: nn.Module, x: Tensor, dout: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    parameters = list(layer.parameters())

    def run() -> tuple[Tensor, ...]:
        with torch.enable_grad():
            out = layer(x)
            return (out.detach(), *torch.autograd.grad(out, [x, *parameters], dout))

    return run


class Gpt(nn.Module):
    """A GPT of 124M parameters; the output layer shares the embedding and stays in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = (
            nn.Embedding(VOCABULARY, WIDTH),
            nn.Embedding(LONGEST, WIDTH),
        )
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


def text(seed: int, batches: int, batch: int, length: int) -> Tensor:
    """Return batches of tokens [batches, batch, length + 1]."""
    fixed = torch.Generator(CUDA).manual_seed(1)
    often = 1.0 / torch.arange(1, VOCABULARY + 1, device=CUDA)
    followers = torch.multinomial(often, VOCABULARY * FOLLOWERS, True, generator=fixed)
    followers = followers.view(VOCABULARY, FOLLOWERS)
    weights = 1.0 / torch.arange(1, FOLLOWERS + 1, device=CUDA)
    drawn = torch.Generator(CUDA).manual_seed(seed)
    rows = batches * batch
    found = [torch.multinomial(often, rows, True, generator=drawn)]
    for _ in range(length):
        pick = torch.multinomial(weights, rows, True, generator=drawn)
        found.append(followers[found[-1], pick])
    return torch.stack(found, 1).view(batches, batch, length + 1)


class Trainer:
    """Train one GPT; a step is one CUDA graph, or with `eager` as many launches as it takes."""

    def __init__(self, recipe: str, seed: int, first: Tensor, *, eager: bool = False) -> None:
        torch.manual_seed(seed)
        self.model = Gpt().to(CUDA)
        if recipe != "bf16":
            convert(self.model.layers, recipe)  # type: ignore[arg-type]
        self._rate = torch.tensor(0.0, device=CUDA)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), self._rate, (0.9, 0.95), fused=True, capturable=True
        )
        self._tokens, self._loss = first.clone(), torch.zeros((), device=CUDA)
        self._graph: torch.cuda.CUDAGraph | None = None
        # steps with a rate of 0: they compile, and leave the weights as they are
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        if not eager:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
            self._graph = graph
        for state in self._optimizer.state.values():
            for x in state.values():
                x.zero_()

    def _step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = self.model(self._tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self._optimizer.step()
        self._loss.copy_(loss.detach())

    def step(self, tokens: Tensor, rate: float) -> Tensor:
        """Train on a batch; return its loss, which stays on the GPU."""
        self._tokens.copy_(tokens)
        self._rate.fill_(rate)
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()
        return self._loss.clone()

    @torch.no_grad()
    def held_out(self, batches: Tensor) -> float:
        """Return the mean loss of batches that were not learnt."""
        with torch.autocast("cuda", torch.bfloat16):
            return float(torch.stack([self.model(tokens) for tokens in batches]).mean())


def trained(
    recipe: str, seed: int, batches: Tensor, held: Tensor, *, eager: bool
) -> dict[str, Any]:
    """Train from one seed; return the losses and the time."""
    trainer = Trainer(recipe, seed, batches[0], eager=eager)
    losses, steps = [], len(batches)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for step, tokens in enumerate(batches):
        rate = 6e-4 * min(1.0, (step + 1) / 50, 0.1 + 2 * (1 - step / steps))
        losses.append(trainer.step(tokens, rate))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "held_out_loss": trainer.held_out(held),
        "losses": torch.stack(losses).tolist(),
    }


def seconds_to(loss: float, found: dict[str, Any]) -> str:
    """Return the seconds after which the mean of 50 losses first reached `loss`."""
    losses = found["losses"]
    for step in range(50, len(losses) + 1):
        if sum(losses[step - 50 : step]) / 50 <= loss:
            return f"{found['seconds'] * step / len(losses):.2f}"
    return "never"


def gpt(given: argparse.Namespace, until: float) -> Iterator[dict[str, object]]:
    """Train with each recipe from each seed on the same text."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    held = text(0, 64, given.batch, given.length)
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        batches = text(seed + 10, given.steps, given.batch, given.length)
        base: dict[str, Any] = {}
        for recipe in ("bf16", *given.recipes.split(",")):
            if time.monotonic() > until:
                return
            found = trained(recipe, seed, batches, held, eager=given.eager)
            base = found if recipe == "bf16" else base
            equal = sum(base["losses"][-50:]) / 50
            row = {
                **where, "recipe": recipe, "seed": seed, "steps": given.steps,
                "tokens_a_step": given.batch * given.length,
                "tokens": given.steps * given.batch * given.length,
                "graph": "no" if given.eager else "yes", "seconds": f"{found['seconds']:.2f}",
                "held_out_loss": f"{found['held_out_loss']:.4f}",
                "loss_of_bf16": f"{found['held_out_loss'] / base['held_out_loss']:.4f}",
                "seconds_to_final_loss_of_bf16": seconds_to(equal, found),
                "first_loss": f"{found['losses'][0]:.3f}",
            }  # fmt: skip
            print({k: v for k, v in row.items() if k not in where}, flush=True)
            yield row


def main() -> None:
    """Measure and write fp8_linear.csv, fp8_engine.csv and fp8_gpt.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--recipes", default="row,block")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--length", type=int, default=LONGEST, help="tokens a sequence")
    parser.add_argument("--eager", action="store_true", help="steps without CUDA graphs")
    parser.add_argument("--only", choices=["layers", "engines", "gpt"])
    parser.add_argument("--forms", default=",".join(ENGINES), help="transformer layers")
    parser.add_argument("--uncompiled", action="store_true", help="transformer layers only so")
    parser.add_argument("--rows", default="2048,4096,8192,16384", help="tokens of these")
    parser.add_argument("--layer-recipes", default=",".join(RECIPES))
    parser.add_argument("--skip", type=int, default=0, help="shapes of layers to leave out first")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many then to time")
    parser.add_argument("--warm", action="store_true", help="only compile the layers")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    parts = {"layers": ("fp8_linear", layers), "engines": ("fp8_engine", engines),
             "gpt": ("fp8_gpt", gpt)}  # fmt: skip
    for part, (name, measured) in parts.items():
        found = []
        for row in measured(given, until) if given.only in (None, part) else ():
            found.append(row)
            write(name, found, given.out)


if __name__ == "__main__":
    main()
