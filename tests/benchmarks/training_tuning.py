"""Compile the kernels that flash-linear-attention tunes for RWKV-7, in several processes.

    python -m tests.benchmarks.training_tuning [--parts 10] [--model rwkv7-0.4B] [--batch 8]
        [--tokens 1024]

fla tries 461 configurations for the recurrence alone, and Triton compiles them one after the other.
Here each process compiles a share of them into Triton's cache; `training recurrent` then finds all
of them there and only measures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.rwkv.weights import HEAD
from gpudeck.accel.training.shapes import new_recurrent_config
from tests.benchmarks.peer_tuning import compile_share
from tests.benchmarks.training_peers import by_fla, fla_steps
from tests.benchmarks.training_runs import VOCABULARY, say

_LAYERS = 2
"""The first layer of an RWKV-7 has no residual of values; all others are alike."""


def compile_part(args: argparse.Namespace) -> None:
    """Compile a share of what fla-core needs in our model, and of what fla's own model needs."""
    device = find_device().torch_device
    config = new_recurrent_config(args.model, VOCABULARY)._replace(layers=_LAYERS)
    shape = (args.batch, args.tokens, config.hidden // HEAD, HEAD)
    with compile_share(args.part, args.parts):
        q, k, v, decay, a, b = (
            torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
            for dtype in (*[torch.bfloat16] * 3, *[torch.float32] * 3)
        )
        by_fla(q, k, v, decay=decay, a=a, b=b, starts=None).out.float().sum().backward()
        say(f"{args.part}: fla-core")
        for short in (False, True):
            next(fla_steps(config, args.batch, args.tokens, device, short=short))
            say(f"{args.part}: fla's own model{', weights in bfloat16' if short else ''}")


def main() -> None:
    """Start the processes, or be one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training_tuning")
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--part", type=int)
    parser.add_argument("--model", default="rwkv7-0.4B")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    if args.part is not None:
        compile_part(args)
        return
    # nothing is tuned here that is worth keeping
    environment = {**os.environ, "FLA_CACHE_RESULTS": "0", "OMP_NUM_THREADS": "1"}
    own = [sys.executable, "-m", "tests.benchmarks.training_tuning", *sys.argv[1:]]
    started = [
        subprocess.Popen([*own, "--part", str(part)], env=environment) for part in range(args.parts)
    ]
    for process in started:
        process.wait()


if __name__ == "__main__":
    main()
