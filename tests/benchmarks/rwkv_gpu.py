"""Compare our RWKV-7 with its peers (rwkv_peers.py) on a GPU, with random weights.

    python -m tests.benchmarks.rwkv_gpu [0.1B 1.5B 2.9B] [--peers rwkv fla] [--out DIR]

Decode and prefill are measured in turn, in the official shapes. The rows go to results/rwkv_gpu.csv
after every round: the tokens a second of all sequences together and, for decoding, the bytes that a
step moves, as a share of what a large copy moves in the same run and of the card's data sheet. The
bytes are the weights that are read, and the states, read and written once. A single sequence reads
the rows of the channel mix's second matrix that its activations need and no others: those are
counted. Of random activations about half are zero after the squared ReLU; in trained models 86 to
90 % are. `trained-like` weights are random, too, but for a shift that leaves as many zeros.

Before, each contender computes the logits after one prompt. Its precision and the error of its
logits, relative to ours in fp32, stand beside every speed, and our speed over that of each peer
stands in `gpudeck bf16 over it`. A peer that fails is reported and skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.weights.names import canonical
from tests.benchmarks import rwkv_peers
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.rwkv_peers import Peer

SHAPES = {
    "0.1B": (12, 768, (64, 64, 32, 128)),
    "1.5B": (24, 2048, (96, 96, 64, 256)),
    "2.9B": (32, 2560, (96, 96, 64, 320)),
}
"""Layers, channels, and ranks of w, a, v and g."""
VOCABULARY, BATCHES = 65536, (1, 32, 128)
ROUNDS, TOKENS, PROMPT = 5, 64, 4096
PROBE = [(i * 37) % VOCABULARY for i in range(700)]
PEERS = (("rwkv", "rwkv"), ("flash-linear-attention", "fla"))
"""Packages and their modules."""
MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")
TRAINED_ZEROS = 0.88
"""The share of zeros after the squared ReLU in trained models.

Source: Albatross (github.com/BlinkDL/Albatross) reports 86 to 90 %.
"""
DATA_SHEET = {"NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA H200": 4.8e12}
"""The vendor's bytes a second."""
OURS = "gpudeck bf16"


def random_weights(
    layers: int, channels: int, ranks: tuple[int, ...], device: str = "cuda"
) -> dict[str, torch.Tensor]:
    """Return random weights with BlinkDL's names and shapes, in fp16."""

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=torch.float16) * scale

    c, small = channels, channels**-0.5
    w = {"emb.weight": normal(VOCABULARY, c), "head.weight": normal(VOCABULARY, c, scale=small)}
    norms = ["ln_out", "blocks.0.ln0"]
    for i in range(layers):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        norms += [f"blocks.{i}.ln1", f"blocks.{i}.ln2", f"{att}ln_x"]
        w |= {att + mix: torch.rand(1, 1, c, device=device, dtype=torch.float16) for mix in MIXES}
        for name, rank in zip("wavg", ranks, strict=True):
            w |= {
                f"{att}{name}1": normal(c, rank, scale=small),
                f"{att}{name}2": normal(rank, c, scale=rank**-0.5),
            }
            w |= {} if name == "g" else {f"{att}{name}0": normal(1, 1, c)}
        w |= {
            att + "k_k": normal(1, 1, c),
            att + "k_a": normal(1, 1, c),
            att + "r_k": normal(c // 64, 64, scale=0.1),
        }
        w |= {
            f"{att}{name}.weight": normal(c, c, scale=small)
            for name in ("receptance", "key", "value", "output")
        }
        w |= {ffn + "x_k": normal(1, 1, c), ffn + "key.weight": normal(4 * c, c, scale=small)}
        w |= {ffn + "value.weight": normal(c, 4 * c, scale=small / 4)}
    for norm in norms:
        w |= {
            norm + ".weight": torch.ones(c, device=device, dtype=torch.float16),
            norm + ".bias": normal(c, scale=0.1),
        }
    return w


def ours(tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> RWKV7:
    """Return our model with the same weights."""
    vectors = {
        name: t.flatten() if t.numel() == max(t.shape) else t
        for name, t in canonical(tensors).items()
    }
    return RWKV7(vectors, "cuda", dtype)


class Activations(TorchFunctionMode):
    """Keep what enters the ReLU of every layer while torch computes a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[torch.Tensor] = []
        """[tokens, hidden] each."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        if func is torch.relu:
            self.layers.append(args[0][0].float())
        return func(*args, **(kwargs or {}))

    @classmethod
    def of(cls, model: RWKV7) -> list[torch.Tensor]:
        """Return those of PROBE."""
        with cls() as seen:
            model.last_layer([PROBE], model.fresh(), lambda: None)
        return seen.layers


def trained_like(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights with so many zeros after the squared ReLU as trained models have.

    The bias of the norm before is the same for all tokens: a multiple of it that is taken from
    every row of the key matrix lowers all activations of the layer alike.
    """
    changed = dict(tensors)
    for i, before in enumerate(Activations.of(ours(tensors, torch.bfloat16))):
        bias = tensors[f"blocks.{i}.ln2.bias"].float()
        level = before.flatten()[:: max(1, before.numel() // 1_000_000)].quantile(TRAINED_ZEROS)
        name = f"blocks.{i}.ffn.key.weight"
        changed[name] = (tensors[name].float() - level * bias / bias.square().sum()).half()
    return changed


def zeros(model: RWKV7) -> float:
    """Return the share of activations that are zero, over all layers and tokens."""
    shares = [float((x <= 0).float().mean()) for x in Activations.of(model)]
    return sum(shares) / len(shares)


def moved(model: RWKV7, batch: int, zero: float) -> float:
    """Return the bytes of weights that a step reads, and of states that it reads and writes."""
    values = [layer.ffn_value for layer in model.weights.layers]
    unread = zero * sum(v.nbytes for v in values) if batch == 1 else 0.0
    embeddings = model.weights.embeddings
    return model.nbytes - embeddings.nbytes - unread + 2 * model.fresh(batch).nbytes


def seconds(call: Callable[[], object]) -> float:
    """Return the wall time of a call, with an idle GPU before and after."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def bandwidth() -> float:
    """Return the bytes a second that a copy within the GPU reads and writes."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return max(2 * source.nbytes / seconds(lambda: target.copy_(source)) for _ in range(10))


def decode(model: RWKV7, batch: int) -> Callable[[], None]:
    """Generate greedy tokens of a batch, each fed back through the host as in use."""
    logits, state = model.step([1] * batch, model.fresh(batch))

    def run() -> None:
        nonlocal logits, state
        for _ in range(TOKENS):
            logits, state = model.step(logits.argmax(1).tolist(), state)

    return run


def peers_of(tensors: dict[str, torch.Tensor], wanted: Collection[str]) -> list[Peer]:
    found: list[Peer] = []
    makers = {"rwkv": rwkv_peers.package, "fla": rwkv_peers.flash_linear_attention}
    for make in (makers[name] for name in wanted):
        began = time.perf_counter()
        try:
            peer = make(tensors)
            if peer is None:
                print(f"{make.__name__}: not installed", flush=True)
                continue
            made = time.perf_counter() - began
            peer.logits(PROBE)
            found.append(peer)
            print(
                f"{peer.name}: made in {made:.0f} s, "
                f"first logits after {time.perf_counter() - began:.0f} s",
                flush=True,
            )
        except (RuntimeError, OSError, ImportError, AttributeError, TypeError) as error:
            print(
                f"{make.__name__}: {(str(error) or type(error).__name__).splitlines()[-1]}",
                flush=True,
            )
    return found


class Run(NamedTuple):
    """One thing to time."""

    call: Callable[[], object]
    tokens: int
    moved: float = 0.0
    """The bytes of a step; 0 if they are not counted."""
    zero: float | None = None
    """The share of zero activations."""


Runs = Mapping[tuple[str, str], Run]
"""By implementation and task."""


def errors_of(known: RWKV7, asked: Mapping[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """Return the difference of each contender's logits after PROBE from those in fp32, relative to
    their norm.
    """
    exact = known.forward(PROBE)[0]
    return {
        who: float((logits().float() - exact).norm() / exact.norm())
        for who, logits in asked.items()
    }


def measure(
    name: str, limits: Mapping[str, float], wanted: Collection[str]
) -> Iterator[list[dict[str, object]]]:
    """Yield the rows of one model after each round."""
    tensors = random_weights(*SHAPES[name])
    kinds = (("bf16", torch.bfloat16), ("fp16", torch.float16), ("int8", torch.int8))
    models = {f"gpudeck {label}": ours(tensors, dtype) for label, dtype in kinds}
    like = {f"gpudeck {label}, trained-like": ours(trained_like(tensors), dtype)
            for label, dtype in kinds[::2]}  # fmt: skip
    peers = peers_of(tensors, wanted)
    asked: dict[str, Callable[[], torch.Tensor]] = {
        who: lambda model=model: model.forward(PROBE)[0] for who, model in models.items()
    }
    asked |= {peer.name: lambda peer=peer: peer.logits(PROBE) for peer in peers}
    errors = errors_of(ours(tensors, torch.float32), asked)
    runs = runs_of(models, like, peers)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for number in range(ROUNDS + 1):
        for key in random.sample(list(runs), len(runs)):
            taken = seconds(runs[key].call)
            if number:  # the first round compiles kernels
                times[key].append(taken)
        if number:
            yield rows_of(name, runs, times, errors, limits)


def runs_of(models: Mapping[str, RWKV7], like: Mapping[str, RWKV7], peers: Sequence[Peer]) -> Runs:
    prompt = [(i * 37) % VOCABULARY for i in range(PROMPT)]
    runs: dict[tuple[str, str], Run] = {}
    for who, model in {**models, **like}.items():
        zero = zeros(model)
        for batch in BATCHES if who in models else (1,):
            size = moved(model, batch, zero)
            runs[who, f"decode, batch {batch}"] = Run(
                decode(model, batch), batch * TOKENS, size, zero if batch == 1 else None
            )
        if who in models:
            runs[who, "prefill"] = Run(lambda model=model: model.forward(prompt), PROMPT)  # type: ignore[misc]
    for peer in peers:
        if peer.decode:
            runs[peer.name, "decode, batch 1"] = Run(
                lambda peer=peer: peer.decode(TOKENS),  # type: ignore[misc]
                TOKENS,
            )
        runs[peer.name, "prefill"] = Run(lambda peer=peer: peer.logits(prompt), PROMPT)  # type: ignore[misc]
    runs[f"{OURS} again", "decode, batch 1"] = runs[OURS, "decode, batch 1"]
    return runs


def rows_of(
    name: str,
    runs: Runs,
    times: Mapping[tuple[str, str], Sequence[float]],
    errors: Mapping[str, float],
    limits: Mapping[str, float],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (who, did), found in times.items():
        run, middle = runs[who, did], statistics.median(found)
        mine = times.get((OURS, did))
        batch = run.tokens // TOKENS
        shares = {
            f"percent_of_{limit}": f"{100 * run.moved * TOKENS / middle / speed:.3g}"
            if run.moved and speed
            else ""
            for limit, speed in limits.items()
        }
        rows.append(
            {
                "implementation": who,
                "model": name,
                "what": did,
                "unit": "tok/s",
                **spread([run.tokens / t for t in found]),
                "logits_error": f"{errors[who]:.3g}" if who in errors else "",
                "gpudeck bf16 over it": f"{middle / statistics.median(mine):.4g}" if mine else "",
                "zero_share": "" if run.zero is None else f"{run.zero:.3f}",
                "bytes_a_step": f"{run.moved:.5g}" if run.moved else "",
                "bytes_a_token": f"{run.moved / batch:.5g}" if run.moved else "",
                **shares,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"of {', '.join(SHAPES)}; default: all"
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["rwkv", "fla"],
        choices=["rwkv", "fla"],
        help="the kernels of flash-linear-attention take minutes to tune (default: both)",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := set(options.models) - set(SHAPES):
        parser.error(f"there is no shape of {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")  # raised by the peers on import
    limits = {"copy": bandwidth(), "data_sheet": DATA_SHEET.get(torch.cuda.get_device_name(), 0.0)}
    print(", ".join(f"{name} {speed / 1e12:.3g} TB/s" for name, speed in limits.items()))
    packages = [
        "torch",
        "triton",
        *(name for name, module in PEERS if importlib.util.find_spec(module)),
    ]
    where = {f"{name}_bytes_per_s": f"{speed:.4g}" for name, speed in limits.items()}
    where |= context(torch.cuda.get_device_name(), packages)
    rows: list[dict[str, object]] = []
    for name in options.models or SHAPES:
        new: list[dict[str, object]] = []
        with torch.inference_mode():
            for new in measure(name, limits, options.peers):
                write("rwkv_gpu", [row | where for row in [*rows, *new]], options.out)
        rows += new
        for row in new:
            share = f"{row['percent_of_copy']} % of a copy, {row['percent_of_data_sheet']} % of the"
            said = f"{name} {row['implementation']}, {row['what']}: {row['median']} {row['unit']}"
            about = f"error {row['logits_error']}, ours over it {row['gpudeck bf16 over it']}"
            full = f"; {share} data sheet" if row["percent_of_copy"] else ""
            print(f"{said}; {about}{full}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
