"""Measure and check attention over the GPUs of this machine, beside other packages.

Run `torchrun --nproc-per-node 2 -m tests.benchmarks.distributed PART --out FOLDER`. Each row is
written as soon as it is measured. A step that hangs ends the process; started again with the same
folder it goes on with the next step. NVLink multicast stays off.

Parts: table (ours beside other packages), exactness, float64, fp8, memory, timeline, lost-peer.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist

from tests.benchmarks.multi_gpu import exactness, float64, fp8, shim, speed, timeline
from tests.benchmarks.multi_gpu.cells import CELLS, Steps, Table, on_gpu, say
from tests.benchmarks.rows import RESULTS

PARTS = ("table", "exactness", "float64", "fp8", "memory", "timeline", "lost-peer")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first so many")
    asked = parser.parse_args()
    shim.install()
    if on_gpu():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu() else "gloo", timeout=timedelta(seconds=60))
    steps = Steps(asked.out, asked.part)
    times = Table(asked.out / "distributed.csv", speed.FIELDS)
    checks = Table(asked.out / "distributed_checks.csv", exactness.FIELDS)
    say(f"{asked.part} begins")
    if asked.part == "table":
        shim.show_to_transformers()
        speed.run_table(times, steps, CELLS[: asked.cells])
    elif asked.part == "exactness":
        exactness.run_exactness(checks, steps)
    elif asked.part == "float64":
        float64.run_float64(checks, steps)
    elif asked.part == "fp8":
        fp8.run_fp8(times, steps)
    elif asked.part == "memory":
        exactness.run_memory(checks, steps)
    elif asked.part == "timeline":
        timeline.run_timeline(asked.out / "distributed_timeline.csv", steps)
    else:
        exactness.run_lost_peer(steps)
    say(f"{asked.part} ends")
    os._exit(0)  # groups of a peer that failed may hang


if __name__ == "__main__":
    main()
