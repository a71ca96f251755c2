"""Replay whole passes as CUDA graphs, where queueing them would take the host longer than the GPU
computes.

A graph holds the addresses of its tensors. In a training loop the same ones come back, as torch's
allocator gives out the same memory: a pass is recorded when its addresses are seen again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.distributed.direct import Direct
from gpudeck.accel.distributed.driver import raise_flag, take_flag

SHORT_S = 8e-3
"""Passes that are predicted to take longer are queued faster than they run."""
MOST_GRAPHS, MOST_SEEN = 512, 4096


class Replays:
    """Keep the graphs of passes on one device."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._graphs: OrderedDict[Hashable, tuple[torch.cuda.CUDAGraph, list[int]]] = OrderedDict()
        self._pool: Any = None

    def run(
        self,
        what: Hashable,
        tensors: Sequence[Tensor],
        exchange: Direct,
        work: Callable[[], None],
    ) -> None:
        """Run a pass.

        Args:
            what: the request; one object for all calls of the same request.
            tensors: all tensors that the pass reads and writes.
            exchange: how it moves them.
            work: runs the pass once.
        """
        if torch.cuda.is_current_stream_capturing():  # the caller makes a graph of more
            return work()
        key = (what, *((t.data_ptr(), t.stride()) for t in tensors))
        here = (key, exchange.place)
        if here in self._graphs:
            self._graphs.move_to_end(here)
        elif key in self._seen:
            self._record(here, exchange, work)
        else:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(key)
            return work()
        exchange.replay(*self._graphs[here])

    def _record(self, here: Hashable, exchange: Direct, work: Callable[[], None]) -> None:
        if len(self._graphs) >= MOST_GRAPHS:
            self._graphs.popitem(last=False)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        rounds = exchange.record(graph, self._pool, work)
        self._graphs[here] = graph, rounds


@lru_cache
def records_flags(device: torch.device) -> bool:
    """Return whether this driver takes waits for flags into a graph, which is tried once."""
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                raise_flag(flag.data_ptr(), stream.cuda_stream)
                take_flag(flag.data_ptr(), stream.cuda_stream)
            finally:
                graph.capture_end()
            graph.replay()
        stream.synchronize()
    except RuntimeError:
        return False
    return True
