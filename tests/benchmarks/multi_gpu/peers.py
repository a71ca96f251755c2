"""Run attention over several GPUs by other packages, each in several settings.

Their kernel is ours, under the names of flash_attn; torch's own has cuDNN's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpudeck.accel.distributed.sharding import Span, Spans, spans_of
from tests.benchmarks.multi_gpu import shim
from tests.benchmarks.multi_gpu.cells import Cell, device

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Contender(NamedTuple):
    """A package in one setting; `make` returns a function of shards [B,H,S,D]."""

    package: str
    setting: str
    layout: Callable[[Cell], tuple[Spans, ...]]
    make: Callable[[Cell, ExitStack], Attend]


def contenders(cell: Cell) -> Iterator[Contender]:
    """Yield the contenders that can compute a cell, without settings that were best in no cell."""
    zigzag, whole = _zigzag, _contiguous
    if cell.documents:
        yield Contender(
            "ring-flash-attn", "zigzag varlen", _zigzag_of_documents, _rfa_zigzag_varlen
        )
        yield Contender("ringmaster", "ulysses varlen", whole, _ringmaster_ulysses)
        return
    layout = zigzag if cell.causal else whole
    yield Contender("torch", "context_parallel cudnn allgather", layout, _torch("allgather"))
    yield Contender("yunchang", "ulysses", whole, _yunchang_ulysses)
    yield Contender("ringmaster", "ulysses", whole, _ringmaster_ulysses)
    if cell.causal:
        yield Contender("ring-flash-attn", "zigzag", zigzag, _rfa_zigzag)
    else:
        yield Contender("ring-flash-attn", "ring", whole, _rfa_ring)


def _zigzag(cell: Cell) -> tuple[Spans, ...]:
    return spans_of("zigzag", cell.tokens, dist.get_world_size())


def _contiguous(cell: Cell) -> tuple[Spans, ...]:
    return spans_of("contiguous", cell.tokens, dist.get_world_size())


def _zigzag_of_documents(cell: Cell) -> tuple[Spans, ...]:
    """Return each document divided in zigzag for itself."""
    ranks = dist.get_world_size()
    found: list[list[Span]] = [[] for _ in range(ranks)]
    begin = 0
    for length in cell.documents:
        for mine, spans in zip(found, spans_of("zigzag", length, ranks), strict=True):
            mine += [Span(begin + s.start, begin + s.stop) for s in spans]
        begin += length
    return tuple(map(tuple, found))


def _turned(attend: Callable[..., Any]) -> Attend:
    """Return a function of [B,H,S,D] from one of [B,S,H,D]."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attend(*(t.transpose(1, 2) for t in (q, k, v)))
        return out.transpose(1, 2)

    return call


def _torch(rotate: str) -> Callable[[Cell, ExitStack], Attend]:
    def make(cell: Cell, stack: ExitStack) -> Attend:
        from torch.distributed.tensor.experimental import _attention as cp

        cp.set_rotate_method(rotate)
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        mesh = init_device_mesh(kind, (dist.get_world_size(),))
        options = _torch_options()
        before = options.enable_load_balance
        options.enable_load_balance = cell.causal
        stack.callback(setattr, options, "enable_load_balance", before)
        buffer = torch.zeros(1, cell.tokens, device=kind)
        stack.enter_context(cp.context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[1]))
        stack.enter_context(sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]))

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            grouped = q.shape[1] != k.shape[1]
            # torch replaces the function in its module
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=cell.causal, enable_gqa=grouped
            )

        return call

    return make


def _torch_options() -> Any:
    try:
        from torch.distributed.tensor.experimental._context_parallel import _attention
    except ImportError:
        from torch.distributed.tensor.experimental import _attention
    return _attention._cp_options


def _yunchang_ulysses(cell: Cell, _: ExitStack) -> Attend:
    import yunchang
    from yunchang.kernels import AttnType

    module = yunchang.UlyssesAttention(_group(), attn_type=AttnType.FA)
    return _turned(lambda q, k, v: module(q, k, v, causal=cell.causal))


def _rfa_zigzag(cell: Cell, _: ExitStack) -> Attend:
    import ring_flash_attn as rfa

    return _turned(lambda q, k, v: rfa.zigzag_ring_flash_attn_func(q, k, v, causal=True))


def _rfa_ring(cell: Cell, _: ExitStack) -> Attend:
    import ring_flash_attn as rfa

    return _turned(lambda q, k, v: rfa.ring_flash_attn_func(q, k, v, causal=cell.causal))


def _starts(cell: Cell, share: int = 1) -> Tensor:
    lengths = torch.tensor([0, *(n // share for n in cell.documents or (cell.tokens,))])
    return lengths.cumsum(0).to(torch.int32).to(device())


def _rfa_zigzag_varlen(cell: Cell, _: ExitStack) -> Attend:
    import ring_flash_attn as rfa

    ranks = dist.get_world_size()
    starts = _starts(cell, ranks)
    longest = max(cell.documents) // ranks

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = rfa.zigzag_ring_flash_attn_varlen_func(
            *(t[0].transpose(0, 1) for t in (q, k, v)), starts, longest, causal=True
        )
        return out.transpose(0, 1)[None]

    return call


def _ringmaster_ulysses(cell: Cell, _: ExitStack) -> Attend:
    import ringmaster as rm
    from ringmaster.strategies.ulysses import make_ulysses_attention
    from transformers import AttentionInterface

    AttentionInterface.register("flash_attention_2", _inner)
    runtime = rm.CPRuntime(rm.RingmasterConfig(), ulysses_group=_group(), cp_group=_group())
    if cell.documents:
        runtime.varlen = _starts(cell), max(cell.documents)
    rm.set_runtime(runtime)
    attend = make_ulysses_attention("flash_attention_2")
    module = torch.nn.Module()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attend(module, q, k, v, None, is_causal=cell.causal)[0]
        return out.transpose(1, 2)

    return call


def _inner(module: object, q: Tensor, k: Tensor, v: Tensor, mask: None, **options: Any) -> Any:
    turned = (t.transpose(1, 2) for t in (q, k, v))
    return shim.flash_attn_func(*turned, causal=bool(options.get("is_causal"))), None


def _group() -> dist.ProcessGroup:
    return dist.distributed_c10d._get_default_group()
