"""Measure the time from the start of a process to the first token of a large model on a GPU.

    python -m tests.benchmarks.rwkv_load [--model 1.5B] [--device cuda] [--out DIR]

The model is a random RWKV-7 of 1.5B parameters, 3 GB in two shards. Each run is a process of its
own, like the assistant's, and records the seconds until the imports are done, until the weights are
on the GPU, and until the first token after a prompt of 32. The first run also compiles the kernels;
later ones run with the files in the system's cache, and without. The rows go to
results/rwkv_load.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.rwkv_gpu import SHAPES, random_weights
from tests.unit.accel.rwkv.rwkv_models import to_hf, write_hf

ROUNDS, SHARDS = 5, 2
_CHILD = """
import json, sys, time
began = float(sys.argv[1])
from gpudeck.accel.rwkv.model import RWKV7
import torch
told = {"imports": time.time() - began}
dtype = torch.bfloat16 if sys.argv[3] == "cuda" else torch.float32
model = RWKV7.load(sys.argv[2], sys.argv[3], dtype)
if sys.argv[3] == "cuda":
    torch.cuda.synchronize()
told["weights"] = time.time() - began
logits, state = model.forward([1 + i % 300 for i in range(32)])
model.forward([int(logits.argmax())], state)[0].argmax().item()
told["first token"] = time.time() - began
print(json.dumps(told))
"""


def once(folder: Path, device: str, cache: Path) -> Mapping[str, float]:
    """Return the seconds from the start of a process to each mark."""
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, repr(time.time()), str(folder), device],
        env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


def forget(folder: Path) -> None:
    """Remove the files from the system's cache."""
    for file in folder.glob("*.safetensors"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="1.5B", choices=sorted(SHAPES))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as base:
        folder, cache = Path(base) / "model", Path(base) / "kernels"
        tensors = random_weights(*SHAPES[args.model], args.device)
        write_hf(folder, {name: t.contiguous().cpu() for name, t in to_hf(tensors).items()}, SHARDS)
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        del tensors
        for how, rounds in (
            ("kernels to be compiled", 1),
            ("files in the cache", ROUNDS),
            ("files not in the cache", ROUNDS),
        ):
            for _ in range(rounds):
                if how == "files not in the cache":
                    forget(folder)
                for mark, taken in once(folder, args.device, cache).items():
                    found[how, mark].append(taken)
    about = {"model": args.model, "gigabytes": f"{size / 1e9:.2f}"}
    where = context(
        torch.cuda.get_device_name() if args.device == "cuda" else f"{os.cpu_count()} cores",
        ["torch", "safetensors"],
    )
    rows = [
        {**about, "how": how, "until": mark, "unit": "s", **spread(taken), **where}
        for (how, mark), taken in found.items()
    ]
    for row in rows:
        print(
            f"{row['how']:24} {row['until']:12} {row['median']:.4g} s "
            f"(of {row['count']}: {row['min']:.4g} to {row['max']:.4g})"
        )
    print(write("rwkv_load", rows, args.out))


if __name__ == "__main__":
    main()
