"""Compute attention in XLA's buffers with torch: no copy of the inputs, one of each result."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from gpudeck.accel.attention.passes import backward_op, forward_op
from gpudeck.accel.jax.call_frame import Buffer, Call

_ABSENT = (None,) * len(("sink", "slopes", "starts_q", "starts_k"))
"""What programs in JAX do not give."""
_DTYPES = {1: torch.bool, 10: torch.float16, 11: torch.float32, 16: torch.bfloat16}
"""By the numbers that XLA's interface gives them."""
_BYTES = {torch.bool: "|u1", torch.float16: "<f2", torch.float32: "<f4", torch.bfloat16: "<i2"}
"""The dtypes under which torch takes memory; it has no name for bfloat16 there."""


class Rules(msgspec.Struct, frozen=True):
    """Hold the options of a call, which travel through XLA's program as JSON."""

    window: tuple[int, int]
    """(left, right), NO_LIMIT where there is none."""
    scale: float
    softcap: float
    deterministic: bool
    backend: str
    has_bias: bool
    bias_grad: bool = False


def forward(call: Call) -> None:
    """Compute (out, lse) from (q, k, v) and the bias, if there is one."""
    rules = msgspec.json.decode(call.texts["rules"], type=Rules)
    with _reading(call) as (q, k, v, *rest):
        bias = _bias(rest[0], q) if rules.has_bias else None
        rows = (_four(t) for t in (q, k, v))
        _write(call, forward_op(*rows, bias, *_ABSENT, *_options(rules)))


def backward(call: Call) -> None:
    """Compute (dq, dk, dv), and the bias's gradient, from q, k, v, dout, out, lse and the bias."""
    rules = msgspec.json.decode(call.texts["rules"], type=Rules)
    with _reading(call) as (q, k, v, dout, out, lse, *rest):
        bias = _bias(rest[0], q) if rules.has_bias else None
        results = (_four(dout), _four(out), lse.flatten(0, -3), None)
        *grads, of_bias, _ = backward_op(
            *results, *(_four(t) for t in (q, k, v)), bias, *_ABSENT, *_options(rules),
            rules.bias_grad,
        )  # fmt: skip
        if rules.bias_grad:
            if of_bias.numel() != rest[0].numel():  # it was expanded to the batch of q
                of_bias = of_bias.unflatten(0, q.shape[:-3]).sum(-4, keepdim=True)
            grads.append(of_bias)
        _write(call, grads)


def _options(rules: Rules) -> tuple[Any, ...]:
    limits, scores = [*rules.window, 0, 0], [rules.scale, rules.softcap]
    return limits, scores, rules.deterministic, rules.backend


@contextlib.contextmanager
def _reading(call: Call) -> Iterator[list[Tensor]]:
    """Give the arguments as tensors, and compute on the stream of XLA's program."""
    cuda = call.stream is not None
    tensors = [_tensor(buffer, cuda) for buffer in call.arguments]
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if call.stream is not None:
            stream = torch.cuda.ExternalStream(call.stream, tensors[0].device)  # type: ignore[no-untyped-call]
            stack.enter_context(torch.cuda.stream(stream))
        yield tensors


class _OnGPU:
    """Offer memory of a GPU to torch."""

    def __init__(self, buffer: Buffer) -> None:
        self.__cuda_array_interface__ = {
            "shape": buffer.shape, "typestr": _BYTES[_DTYPES[buffer.dtype]], "version": 3,
            "data": (buffer.address, False), "strides": None,
        }  # fmt: skip


def _tensor(buffer: Buffer, cuda: bool) -> Tensor:
    """Return a buffer as a tensor on the same memory."""
    dtype = _DTYPES[buffer.dtype]
    size = math.prod(buffer.shape)
    if not size:
        return torch.empty(buffer.shape, dtype=dtype, device="cuda" if cuda else "cpu")
    if cuda:
        return torch.as_tensor(_OnGPU(buffer)).view(dtype)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(buffer.address)
    return torch.frombuffer(memory, dtype=dtype).view(buffer.shape)


def _write(call: Call, made: Sequence[Tensor]) -> None:
    for buffer, t in zip(call.results, made, strict=True):
        if t.numel():
            _tensor(buffer, call.stream is not None).copy_(t.view(buffer.shape))


def _four(t: Tensor) -> Tensor:
    """Fold the axes that jax.vmap adds into the batch."""
    return t.flatten(0, -4)


def _bias(bias: Tensor, q: Tensor) -> Tensor:
    """Return a bias whose batch is that of q with the axes that jax.vmap adds folded, or 1."""
    if bias.ndim > 4 and bias.shape[-4] != q.shape[-4]:
        bias = bias.expand(*bias.shape[:-4], *q.shape[-4:-3], *bias.shape[-3:])
    return _four(bias)
