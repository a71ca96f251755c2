"""Record what the GPUs do during a pass: kernels and copies with their times."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpudeck.accel.distributed import shard, spans_of
from tests.benchmarks.multi_gpu.cells import Cell, Steps, both, drawn, say

FIELDS = ("what", "rank", "stream", "kind", "name", "start_us", "microseconds", "bytes")
RECORDED = (
    ("64k gather, forward", Cell(32, 8, 64 * 1024), "gather", False),
    ("16k gather, forward", Cell(32, 8, 16 * 1024), "gather", False),
    ("64k ulysses, both", Cell(32, 8, 64 * 1024), "ulysses", True),
    ("16k ulysses, both", Cell(32, 8, 16 * 1024), "ulysses", True),
)
KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy"}


def run_timeline(file: Path, steps: Steps) -> None:
    """Write one CSV of all events of both ranks."""
    for what, cell, strategy, backward in RECORDED:
        with steps.step(what, 40) as go:
            if go:
                _add(file, what, _record(cell, strategy, backward))


def _record(cell: Cell, strategy: str, backward: bool) -> list[dict[str, object]]:
    from gpudeck.accel.distributed import distributed_attention

    mine = spans_of("zigzag", cell.tokens, dist.get_world_size())[dist.get_rank()]
    given = [shard(t, mine, 2) for t in drawn(cell)]

    def divided(*tensors: torch.Tensor) -> torch.Tensor:
        out = distributed_attention(
            *tensors, causal=True, strategy=strategy, backward_strategy="ulysses"
        )
        assert isinstance(out, torch.Tensor)
        return out

    step = both(divided, given) if backward else lambda: divided(*given[:3])
    with torch.set_grad_enabled(backward):
        for _ in range(8):
            step()
        torch.cuda.synchronize()
        dist.barrier()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(2):
                step()
            torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        profile.export_chrome_trace(trace.name)
        events = json.loads(Path(trace.name).read_text())["traceEvents"]
    return [_reduced(e) for e in events if e.get("cat") in KINDS]


def _reduced(event: dict[str, Any]) -> dict[str, object]:
    arguments = event.get("args", {})
    return {
        "rank": dist.get_rank(), "stream": arguments.get("stream"), "kind": KINDS[event["cat"]],
        "name": str(event["name"]).partition("(")[0][:60], "start_us": round(event["ts"], 1),
        "microseconds": round(event["dur"], 1), "bytes": arguments.get("bytes", ""),
    }  # fmt: skip


def _add(file: Path, what: str, events: list[dict[str, object]]) -> None:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, events)
    if dist.get_rank():
        return
    new, begin = not file.exists(), min(e["start_us"] for mine in every for e in mine)
    with file.open("a", newline="") as f:
        out = csv.DictWriter(f, FIELDS)
        if new:
            out.writeheader()
        for event in (e for mine in every for e in mine):
            start = round(event["start_us"] - begin, 1)
            out.writerow({"what": what, **event, "start_us": start})
    say(f"{what}: {sum(map(len, every))} events")
