"""Our RWKV-7 on a GPU: decode and prefill with random weights in the official shapes, beside the `rwkv` package, in turn.

    python -m tests.benchmarks.rwkv_gpu [0.1B 1.5B 2.9B] [--out DIR]

Writes results/rwkv_gpu.csv, anew after every round: tokens a second of all sequences together, and for decoding the share of the limit
that memory sets: the bytes of weights and states that a step must move, over the bandwidth that a large copy reaches in the same run. Half
of random activations are zero after the squared ReLU; of a trained model's 86 to 90 % are, and the rows they meet are not read.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from assistant.model import RWKV7
from assistant.weights.names import canonical
from tests.benchmarks.rows import RESULTS, context, spread, write

SHAPES = {"0.1B": (12, 768, (64, 64, 32, 128)), "1.5B": (24, 2048, (96, 96, 64, 256)), "2.9B": (32, 2560, (96, 96, 64, 320))}
"""Layers, channels, ranks of w, a, v, g."""
VOCABULARY, BATCHES = 65536, (1, 32, 128)
ROUNDS, TOKENS, PROMPT = 5, 64, 4096
MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")


def random_weights(layers: int, channels: int, ranks: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """BlinkDL's names and shapes, on the GPU, in fp16."""

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.float16) * scale

    c, small = channels, channels**-0.5
    w = {"emb.weight": normal(VOCABULARY, c), "head.weight": normal(VOCABULARY, c, scale=small)}
    norms = ["ln_out", "blocks.0.ln0"]
    for i in range(layers):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        norms += [f"blocks.{i}.ln1", f"blocks.{i}.ln2", f"{att}ln_x"]
        w |= {att + mix: torch.rand(1, 1, c, device="cuda", dtype=torch.float16) for mix in MIXES}
        for name, rank in zip("wavg", ranks, strict=True):
            w |= {f"{att}{name}1": normal(c, rank, scale=small), f"{att}{name}2": normal(rank, c, scale=rank**-0.5)}
            w |= {} if name == "g" else {f"{att}{name}0": normal(1, 1, c)}
        w |= {att + "k_k": normal(1, 1, c), att + "k_a": normal(1, 1, c), att + "r_k": normal(c // 64, 64, scale=0.1)}
        w |= {f"{att}{name}.weight": normal(c, c, scale=small) for name in ("receptance", "key", "value", "output")}
        w |= {ffn + "x_k": normal(1, 1, c), ffn + "key.weight": normal(4 * c, c, scale=small)}
        w |= {ffn + "value.weight": normal(c, 4 * c, scale=small / 4)}
    for norm in norms:
        w |= {norm + ".weight": torch.ones(c, device="cuda", dtype=torch.float16), norm + ".bias": normal(c, scale=0.1)}
    return w


def ours(tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> RWKV7:
    """Our model of the same weights."""
    vectors = {name: t.flatten() if t.numel() == max(t.shape) else t for name, t in canonical(tensors).items()}
    return RWKV7(vectors, "cuda", dtype)


def seconds(call: Callable[[], object]) -> float:
    """Wall time of a call, the GPU idle before and after."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def bandwidth() -> float:
    """Bytes a second that a copy within the GPU reads and writes."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return max(2 * source.nbytes / seconds(lambda: target.copy_(source)) for _ in range(10))


def decode(model: RWKV7, batch: int) -> Callable[[], None]:
    """Greedy tokens of a batch, each fed back through the host as in use."""
    logits, state = model.step([1] * batch, model.fresh(batch))

    def run() -> None:
        nonlocal logits, state
        for _ in range(TOKENS):
            logits, state = model.step(logits.argmax(1).tolist(), state)

    return run


def peer_decode(model) -> Callable[[], None]:
    logits, state = model.forward([1, 2, 3], None)

    def run() -> None:
        nonlocal logits, state
        for _ in range(TOKENS):
            logits, state = model.forward([int(logits.argmax())], state)

    return run


Runs = Mapping[tuple[str, str], tuple[Callable[[], object], int, float]]
"""By implementation and what it does: the call, its tokens, and the least seconds that memory allows it."""


def measure(name: str, limit: float) -> Iterator[list[dict[str, object]]]:
    """The rows of one model after each round."""
    runs = runs_of(name, limit)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for number in range(ROUNDS + 1):
        for key, (run, _, _) in runs.items():
            taken = seconds(run)
            if number:  # the first round compiles
                times[key].append(taken)
        if number:
            yield rows_of(name, runs, times)


def runs_of(name: str, limit: float) -> Runs:
    tensors = random_weights(*SHAPES[name])
    prompt = [(i * 37) % VOCABULARY for i in range(PROMPT)]
    runs: dict[tuple[str, str], tuple[Callable[[], object], int, float]] = {}
    for label, dtype in (("bf16", torch.bfloat16), ("int8", torch.int8)):
        model = ours(tensors, dtype)
        read = model.nbytes - VOCABULARY * model.channels * 2
        for batch in BATCHES:
            moved = read + 2 * model.fresh(batch).nbytes
            runs[f"gpudeck {label}", f"decode, batch {batch}"] = (decode(model, batch), batch * TOKENS, moved / limit * TOKENS)
        runs[f"gpudeck {label}", "prefill"] = (lambda model=model: model.forward(prompt), PROMPT, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        torch.save({n: t.cpu() for n, t in tensors.items()}, Path(folder) / "model.pth")
        from rwkv.model import RWKV

        peer = RWKV(f"{folder}/model", "cuda fp16")
    runs["rwkv fp16", "decode, batch 1"] = (peer_decode(peer), TOKENS, 0.0)
    runs["rwkv fp16", "prefill"] = (lambda: peer.forward(prompt, None), PROMPT, 0.0)
    return runs


def rows_of(name: str, runs: Runs, times: Mapping[tuple[str, str], Sequence[float]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (who, did), found in times.items():
        _, tokens, least = runs[who, did]
        found_rates = spread([tokens / t for t in found])
        share = f"{100 * least / sorted(found)[len(found) // 2]:.3g}" if least else ""
        rows.append({"implementation": who, "model": name, "what": did, "unit": "tok/s", **found_rates, "percent_of_memory_limit": share})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(SHAPES)}; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := set(options.models) - set(SHAPES):
        parser.error(f"there is no shape of {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")  # the package's, at import
    os.environ["RWKV_V7_ON"] = "1"
    limit = bandwidth()
    print(f"a copy moves {limit / 1e12:.3g} TB/s")
    where = {"copy_bytes_per_s": f"{limit:.4g}", **context(torch.cuda.get_device_name(), ["torch", "triton", "rwkv"])}
    rows: list[dict[str, object]] = []
    for name in options.models or SHAPES:
        new: list[dict[str, object]] = []
        with torch.inference_mode():
            for new in measure(name, limit):
                write("rwkv_gpu", [row | where for row in [*rows, *new]], options.out)
        rows += new
        for row in new:
            share = row["percent_of_memory_limit"]
            print(f"{name} {row['implementation']}, {row['what']}: {row['median']} tok/s {share and f'{share} % of the limit'}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
