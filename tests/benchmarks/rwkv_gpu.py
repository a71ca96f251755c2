"""Compare our RWKV-7 with its peers (rwkv_peers.py) on a GPU, with random weights.

    python -m tests.benchmarks.rwkv_gpu [0.1B 1.5B 2.9B] [--alone] [--out DIR]

Decode and prefill are measured in turn, in the official shapes. The rows go to results/rwkv_gpu.csv
after every round: the tokens a second of all sequences together and, for decoding, the share of the
limit set by memory: the bytes of weights and states that a step must move, over the bandwidth of a
large copy in the same run. Half of the random activations are zero after the squared ReLU; in a
trained model 86 to 90 % are, and the rows that they meet are not read. Before, each contender
computes the logits after one prompt, and their difference from ours in fp32 is recorded beside the
speeds. A peer that fails is reported and skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from accel.rwkv.model import RWKV7
from accel.rwkv.weights.names import canonical
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


def peers_of(tensors: dict[str, torch.Tensor]) -> list[Peer]:
    found: list[Peer] = []
    for make in (rwkv_peers.package, rwkv_peers.flash_linear_attention):
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


def differences(
    name: str, known: RWKV7, asked: Mapping[str, Callable[[], torch.Tensor]]
) -> list[dict[str, object]]:
    """Return the difference of each contender's logits after PROBE from those in fp32, relative to
    their norm.
    """
    exact = known.forward(PROBE)[0]
    rows: list[dict[str, object]] = []
    for who, logits in asked.items():
        error = float((logits().float() - exact).norm() / exact.norm())
        row = {
            "implementation": who,
            "model": name,
            "what": f"logits after {len(PROBE)} tokens",
            "unit": "relative error",
        }
        rows.append({**row, **spread([error]), "percent_of_memory_limit": ""})
    return rows


Runs = Mapping[tuple[str, str], tuple[Callable[[], object], int, float]]
"""By implementation and task: the call, its tokens, and the shortest time that memory allows."""


def measure(name: str, limit: float, alone: bool) -> Iterator[list[dict[str, object]]]:
    """Yield the rows of one model after each round; with `alone`, without peers."""
    tensors = random_weights(*SHAPES[name])
    models = {
        f"gpudeck {label}": ours(tensors, dtype)
        for label, dtype in (("bf16", torch.bfloat16), ("int8", torch.int8))
    }
    peers = [] if alone else peers_of(tensors)
    asked: dict[str, Callable[[], torch.Tensor]] = {
        who: lambda model=model: model.forward(PROBE)[0] for who, model in models.items()
    }
    asked |= {peer.name: lambda peer=peer: peer.logits(PROBE) for peer in peers}
    errors = differences(name, ours(tensors, torch.float32), asked)
    runs = runs_of(models, peers, limit)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for number in range(ROUNDS + 1):
        for key, (run, _, _) in runs.items():
            taken = seconds(run)
            if number:  # the first round compiles kernels
                times[key].append(taken)
        if number:
            yield [*errors, *rows_of(name, runs, times)]


def runs_of(models: Mapping[str, RWKV7], peers: Sequence[Peer], limit: float) -> Runs:
    prompt = [(i * 37) % VOCABULARY for i in range(PROMPT)]
    runs: dict[tuple[str, str], tuple[Callable[[], object], int, float]] = {}
    for who, model in models.items():
        read = model.nbytes - VOCABULARY * model.channels * 2
        for batch in BATCHES:
            moved = read + 2 * model.fresh(batch).nbytes
            runs[who, f"decode, batch {batch}"] = (
                decode(model, batch),
                batch * TOKENS,
                moved / limit * TOKENS,
            )
        runs[who, "prefill"] = (lambda model=model: model.forward(prompt), PROMPT, 0.0)
    for peer in peers:
        if peer.decode:
            runs[peer.name, "decode, batch 1"] = (
                lambda peer=peer: peer.decode(TOKENS),
                TOKENS,
                0.0,
            )
        runs[peer.name, "prefill"] = (lambda peer=peer: peer.logits(prompt), PROMPT, 0.0)
    return runs


def rows_of(
    name: str, runs: Runs, times: Mapping[tuple[str, str], Sequence[float]]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (who, did), found in times.items():
        _, tokens, least = runs[who, did]
        found_rates = spread([tokens / t for t in found])
        share = f"{100 * least / sorted(found)[len(found) // 2]:.3g}" if least else ""
        rows.append(
            {
                "implementation": who,
                "model": name,
                "what": did,
                "unit": "tok/s",
                **found_rates,
                "percent_of_memory_limit": share,
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
        "--alone",
        action="store_true",
        help="without the peers, whose kernels take minutes to build and to tune",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := set(options.models) - set(SHAPES):
        parser.error(f"there is no shape of {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")  # raised by the peers on import
    limit = bandwidth()
    print(f"a copy moves {limit / 1e12:.3g} TB/s")
    packages = [
        "torch",
        "triton",
        *(name for name, module in PEERS if importlib.util.find_spec(module)),
    ]
    where = {"copy_bytes_per_s": f"{limit:.4g}", **context(torch.cuda.get_device_name(), packages)}
    rows: list[dict[str, object]] = []
    for name in options.models or SHAPES:
        new: list[dict[str, object]] = []
        with torch.inference_mode():
            for new in measure(name, limit, options.alone):
                write("rwkv_gpu", [row | where for row in [*rows, *new]], options.out)
        rows += new
        for row in new:
            share = row["percent_of_memory_limit"]
            said = f"{name} {row['implementation']}, {row['what']}: {row['median']} {row['unit']}"
            print(f"{said} {share and f'{share} % of the limit'}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
