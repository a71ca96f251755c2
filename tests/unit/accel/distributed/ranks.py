"""Run a function in several processes that form a group by gloo.

The processes are forked from a server that has imported torch already.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import Empty
from typing import Any

import torch
import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["gpudeck.accel.distributed.api", "torch.distributed"])
PATIENCE_S = 120.0


def on_ranks(
    ranks: int, work: Callable[..., Any], *arguments: Any, patience: float = PATIENCE_S
) -> list[Any]:
    """Return what `work(*arguments)` returns, or raises, on each rank; None for one that ended."""
    answers: Any = CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        every = [
            CONTEXT.Process(target=_rank, args=(r, ranks, folder, answers, work, arguments))
            for r in range(ranks)
        ]
        for process in every:
            process.start()
        found: dict[int, Any] = {}
        end = time.monotonic() + patience
        try:
            while len(found) < ranks and time.monotonic() < end:
                try:
                    rank, answer = answers.get(timeout=0.5)
                    found[rank] = pickle.loads(answer)
                except Empty:
                    if not any(process.is_alive() for process in every):
                        break
        finally:
            for process in every:
                process.join(5.0)
                process.kill()
    return [found.get(r) for r in range(ranks)]


def results(ranks: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what `work` returns on each rank, and fail if it raises anything."""
    found = on_ranks(ranks, work, *arguments)
    failed = [
        f"rank {rank}: {answer or 'no answer'}"
        for rank, answer in enumerate(found)
        if answer is None or isinstance(answer, Failed)
    ]
    assert not failed, "\n".join(failed)
    return found


class Failed(str):
    """The traceback of what a rank raised."""


def _rank(
    rank: int, ranks: int, folder: str, answers: Any, work: Callable[..., Any], arguments: Any
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    try:
        answer = work(*arguments)
    except BaseException:  # noqa: BLE001 - the test shows it
        answer = Failed(traceback.format_exc())
    answers.put((rank, pickle.dumps(answer)))
    with suppress(RuntimeError):  # others have failed
        dist.barrier()
    dist.destroy_process_group()
