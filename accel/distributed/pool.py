"""Keep processes, one for each GPU, that compute the shards of whole tensors for one program.

Tensors are shared between the processes; each worker reads its rows, and writes those of its
answer.
"""

from __future__ import annotations

import atexit
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing

from gpudeck.accel.distributed.choice import Choice
from gpudeck.accel.distributed.patience import PATIENCE_S
from gpudeck.accel.distributed.sharding import Spans, shard, spans_of

START_S = 120.0
"""Starting a process imports torch and meets the others."""


class Pool:
    """Processes that form a group; they end with this program."""

    def __init__(self, ranks: int, device: str) -> None:
        if device == "cuda" and ranks > torch.cuda.device_count():
            raise ValueError(
                f"num_gpus is {ranks}, and this machine has {torch.cuda.device_count()} GPUs"
            )
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="gpudeck-ranks-")
        self.seconds: tuple[float, ...] = ()
        """What each rank took for its part of the last request."""
        self._pipes: list[Connection] = []
        self._workers = []
        for rank in range(ranks):
            here, there = context.Pipe()
            worker = context.Process(
                target=_serve, args=(rank, ranks, device, self._folder.name, there), daemon=True
            )
            worker.start()
            there.close()
            self._pipes.append(here)
            self._workers.append(worker)
        atexit.register(self.close)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return the whole output and the logarithms of the sums."""
        out = _shared(q.new_empty((*q.shape[:3], v.shape[3])))
        lse = _shared(q.new_empty(q.shape[:3], dtype=torch.float32))
        self._fill("forward", [q, k, v], [out, lse], options)
        return out, lse

    def backward(
        self,
        dout: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the whole gradients of q, k and v."""
        dq, dk, dv = (_shared(torch.empty_like(t).contiguous()) for t in (q, k, v))
        self._fill("backward", [dout, q, k, v, out, lse], [dq, dk, dv], options)
        return dq, dk, dv

    def explain(self, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Choice:
        """Return what `forward` runs for these tensors."""
        choice = self._run("explain", [q, k, v], [], options)[0]
        assert isinstance(choice, Choice)
        return choice

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            worker.join(5.0)
            worker.kill()
        self._folder.cleanup()

    def _fill(
        self, what: str, given: list[Tensor], targets: list[Tensor], options: dict[str, Any]
    ) -> None:
        """Let every rank compute its rows of the targets, and keep the seconds that each took."""
        answers = self._run(what, given, targets, options)
        self.seconds = tuple(answer for answer in answers if isinstance(answer, float))

    def _run(
        self, what: str, given: list[Tensor], targets: list[Tensor], options: dict[str, Any]
    ) -> list[Choice | float]:
        """Let every rank do its part; return what each one found, or the seconds that it took.

        Raises:
            RuntimeError: if a rank raises, ends or does not answer.
        """
        inputs = [_shared(t.detach()) for t in given]
        if inputs[0].is_cuda:
            torch.cuda.synchronize(inputs[0].device)
        for pipe in self._pipes:
            pipe.send((what, inputs, targets, options))
        answers = [self._answer(rank) for rank in range(len(self._pipes))]
        failed = [answer for answer in answers if isinstance(answer, str)]
        if failed:
            pool_of.cache_clear()
            self.close()
            raise RuntimeError(f"attention over {len(self._pipes)} ranks failed: {failed[0]}")
        return [answer for answer in answers if not isinstance(answer, str)]

    def _answer(self, rank: int) -> str | Choice | float:
        """Wait for a rank; return what went wrong there, what it found, or the seconds it took."""
        pipe = self._pipes[rank]
        try:
            if not pipe.poll(START_S + PATIENCE_S):
                return f"rank {rank} does not answer"
            answer = pipe.recv()
        except (EOFError, OSError):
            answer = "its process has ended"
        return f"rank {rank}: {answer}" if isinstance(answer, str) else answer


@lru_cache(maxsize=4)
def pool_of(ranks: int, device: str) -> Pool:
    """Return the pool of so many processes, which is started once."""
    return Pool(ranks, device)


def _shared(t: Tensor) -> Tensor:
    """Return the tensor in memory that other processes can map, contiguous."""
    t = t.contiguous()
    if t.is_cuda or t.is_shared():  # type: ignore[no-untyped-call]
        return t
    shared: Tensor = t.clone().share_memory_()  # type: ignore[no-untyped-call]
    return shared


def _serve(rank: int, ranks: int, device: str, folder: str, pipe: Connection) -> None:
    """Answer requests until the pipe is closed."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=(Path(folder) / "meet").as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    passes: dict[str, Callable[..., list[Tensor] | Choice]] = {
        "forward": _forward, "backward": _backward, "explain": _explain,
    }  # fmt: skip
    while True:
        try:
            what, inputs, targets, options = pipe.recv()
        except EOFError:
            break
        try:
            pipe.send(_compute(passes[what], rank, ranks, inputs, targets, options))
        except Exception as e:  # noqa: BLE001 - the program that asked raises it
            pipe.send("".join(traceback.format_exception_only(e)).strip())
        del inputs, targets
    dist.destroy_process_group()


def _compute(
    work: Callable[..., list[Tensor] | Choice],
    rank: int,
    ranks: int,
    inputs: list[Tensor],
    targets: list[Tensor],
    options: dict[str, Any],
) -> Choice | float:
    """Do this rank's part of the work, write its rows of the targets, and return the seconds."""
    layout = options.get("layout", "zigzag")
    tokens = inputs[0].shape[2]
    spans = spans_of(layout, tokens, ranks) if isinstance(layout, str) else layout
    device = torch.device("cuda", rank) if inputs[0].is_cuda else torch.device("cpu")
    began = time.perf_counter()
    mine = [shard(t, spans[rank], 2).to(device) for t in inputs]
    found = work(*mine, **{**options, "tokens": tokens})
    if not isinstance(found, Choice):
        for whole, part in zip(targets, found, strict=True):
            _write(whole, part, spans[rank])
    if device.type == "cuda":
        # copies from and to the GPU of the whole tensors run on a stream of that GPU, and their
        # memory must not be unmapped before they are done
        for gpu in {device, inputs[0].device}:
            torch.cuda.synchronize(gpu)
    return found if isinstance(found, Choice) else time.perf_counter() - began


def _write(whole: Tensor, part: Tensor, spans: Spans) -> None:
    """Put the rows of a shard in their places.

    The shard is copied to their GPU first: memory of another process is mapped for its own GPU
    only, so that no kernel of this rank's GPU may write there (cudaIpcOpenMemHandle).
    """
    part, begin = part.to(whole.device), 0
    for span in spans:
        place = whole[:, :, span.start : span.stop : span.step]
        place.copy_(part[:, :, begin : begin + span.size])
        begin += span.size


def _explain(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Choice:
    from gpudeck.accel.distributed.api import explain

    return explain(q, k, v, **options)[0]


def _forward(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> list[Tensor]:
    from gpudeck.accel.distributed.api import distributed_attention

    with torch.no_grad():
        out, lse = distributed_attention(q, k, v, return_lse=True, **options)
    return [out, lse]


def _backward(*tensors: Tensor, **options: Any) -> list[Tensor]:
    from gpudeck.accel.distributed.ring_attention import ring_attention_backward

    chosen = {"backward_strategy": "auto", **options}
    return list(ring_attention_backward(*tensors, **chosen))
