"""Compare the tile sizes of our RWKV-7 on this GPU: those of `gpudeck.accel.rwkv.gpu` and
`gpudeck.accel.rwkv.prompt` against others.

    python -m tests.benchmarks.rwkv_tiles [1.5B 2.9B] [--seconds 240] [--out DIR]

First, each kernel of a step of one sequence is timed by itself, in a graph of many. Then the speed
of the whole is measured with one choice changed at a time; a later choice is tried with the best of
those before it. The result must be the same as with the choices in the code. The rows go to
results/rwkv_tiles.csv after every measurement; when the time is up, the choices that were not tried
are listed.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch

from gpudeck.accel.rwkv import gpu, prompt
from gpudeck.accel.rwkv.gpu import Tile
from gpudeck.accel.rwkv.model import RWKV7
from tests.benchmarks import rwkv_gpu
from tests.benchmarks.rows import RESULTS, context, spread, write

ROUNDS, PROMPT = 5, 4096
WRONG = {torch.bfloat16: 0.05, torch.int8: 0.05}
"""A relative difference of the logits that another order of sums does not explain."""


class Choice(NamedTuple):
    what: str
    module: object
    name: str
    values: tuple[object, ...]
    batch: int = 1
    """The number of sequences; 0 means a prompt."""


def fixed(tile: Tile) -> Callable[[int], Tile]:
    """Return a constant in place of a function that chooses."""
    return lambda _: tile


def choices(channels: int) -> Iterator[Choice]:
    """Return the choices for a model with this number of channels."""
    wide = 1 << (channels - 1).bit_length()
    yield Choice("programs a processor", gpu, "AT_ONCE", (2, 3, 5, 6))
    yield Choice(
        "rows at once",
        gpu,
        "row_tile",
        tuple(fixed(Tile(n, wide, w)) for n in (2, 4, 8) for w in (4, 8)),
    )
    yield Choice(
        "tiles of the sparse product",
        gpu,
        "tile_of",
        tuple(map(fixed, (Tile(64, 128, 4), Tile(64, 64, 4), Tile(64, 256, 8)))),
    )
    yield Choice("splits of the sparse product", gpu, "_SPLITS", (8, 32))
    tiles = [
        Tile(r, d, w)
        for r in (16, 32, 64, 128)
        for d in (64, 128, 256)
        for w in (4, 8)
        if r * d <= 16384
    ]
    for batch in (32, 128):
        yield Choice("tiles", gpu, "tile_of", tuple(map(fixed, tiles)), batch)
    # all tokens of a prompt one after the other
    yield Choice("the recurrence in chunks from", prompt, "CHUNKS_FROM", (1 << 30,), 0)


def told(value: object, size: int) -> str:
    """Return a row of the results.

    Args:
        size: The channels or sequences that the choice depends on.
    """
    chosen = value(size) if callable(value) else value
    return str(tuple(chosen) if isinstance(chosen, tuple) else chosen)


def rate(model: RWKV7, batch: int) -> tuple[dict[str, float], torch.Tensor]:
    """Return the tokens a second, and the logits after a prompt of fixed tokens (batch 0) or one
    step after it.
    """
    ids = [(i * 37) % model.vocabulary for i in range(PROMPT)]
    _, state = model.forward(ids[:64])
    if not batch:
        logits = model.forward(ids)[0].clone()
        model.forward(ids)
        return spread(
            [PROMPT / rwkv_gpu.seconds(lambda: model.forward(ids)) for _ in range(ROUNDS)]
        ), logits
    one = (
        model.step([7], state)[0][0].clone()
        if batch == 1
        else model.step([7] * batch, type(state).join([state] * batch))[0][0].clone()
    )
    run = rwkv_gpu.decode(model, batch)
    run()
    return spread([batch * rwkv_gpu.TOKENS / rwkv_gpu.seconds(run) for _ in range(ROUNDS)]), one


def kernels(model: RWKV7) -> Iterator[dict[str, object]]:
    """Time each kind of launch of a step by itself, in microseconds, with its number of launches in
    a step.
    """
    model.step([1], model.fresh())
    step = model._gpu[1]
    kinds: dict[str, list[Callable[[], None]]] = defaultdict(list)
    for call, launch in zip(step.calls, step._work, strict=True):
        kinds[f"{call.kernel.__name__}, {call.programs[0]} programs"].append(launch)
    for kind, launches in kinds.items():
        again, graph = max(1, 200 // len(launches)), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(again):
                for launch in launches:
                    launch()
        graph.replay()
        times = [
            1e6 * rwkv_gpu.seconds(graph.replay) / (again * len(launches)) for _ in range(ROUNDS)
        ]
        yield {
            "what": f"{kind}, {len(launches)} a step",
            "choice": "",
            "unit": "us",
            **spread(times),
            "difference": "",
        }


def tried(model: RWKV7, dtype: torch.dtype, end: float) -> Iterator[dict[str, object]]:
    with ExitStack() as kept:
        for choice in choices(model.channels):
            best, best_value, exact = 0.0, None, None
            for value in (getattr(choice.module, choice.name), *choice.values):
                if time.monotonic() > end:
                    return
                with patch.object(choice.module, choice.name, value):
                    model._gpu.clear()
                    model._prompt = None
                    try:
                        found, logits = rate(model, choice.batch)
                    except RuntimeError as error:  # more than a multiprocessor has
                        print(f"{choice.what} {value}: {error}", flush=True)
                        continue
                exact = logits if exact is None else exact
                off = float((logits - exact).norm() / exact.norm())
                if off < WRONG[dtype] and found["median"] > best:
                    best, best_value = found["median"], value
                what = f"{choice.what}, {f'batch {choice.batch}' if choice.batch else 'prompt'}"
                yield {
                    "what": what,
                    "choice": told(
                        value, model.channels if choice.name == "row_tile" else choice.batch
                    ),
                    "unit": "tok/s",
                    **found,
                    "difference": f"{off:.2g}",
                }
            kept.enter_context(patch.object(choice.module, choice.name, best_value))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        default=["1.5B"],
        help=f"of {', '.join(rwkv_gpu.SHAPES)}; default: 1.5B",
    )
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="after which no more is begun (default: 240)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    about = context(torch.cuda.get_device_name(), ["torch", "triton"])
    rows: list[dict[str, object]] = []
    for name in options.models:
        tensors = rwkv_gpu.random_weights(*rwkv_gpu.SHAPES[name])
        for dtype in (torch.bfloat16, torch.int8):
            model = rwkv_gpu.ours(tensors, dtype)
            with torch.inference_mode():
                for found in (*kernels(model), *tried(model, dtype, end)):
                    row = {
                        "model": name,
                        "dtype": str(dtype).removeprefix("torch."),
                        **found,
                        **about,
                    }
                    rows.append(row)
                    write("rwkv_tiles", rows, options.out)
                    print(
                        f"{name} {row['dtype']} {row['what']} {row['choice']}: "
                        f"{row['median']} {row['unit']}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
