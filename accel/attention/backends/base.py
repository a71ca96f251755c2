"""What every implementation of attention is: two passes, and a word on what it cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

from accel.attention.inputs import Inputs, loadable
from accel.attention.problem import Problem, dtype_name

Direction = Literal["forward", "backward"]


class Gradients(NamedTuple):
    """Of q, k, v and the bias, each shaped as it is."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None


Run = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""The forward pass of q, k, v: out and lse."""


@runtime_checkable
class Prepares(Protocol):
    """A backend that can do what it does for a kind of input once, ahead of all calls."""

    def prepared(self, x: Inputs, problem: Problem) -> Run | None:
        """Its forward pass for all q, k, v of the sizes, strides, dtype, device and alignment (to 16 bytes) of these, of the layout that
        torch.empty_like(q) has, without gaps in lse. None where each call is different. The problem is not refused and not empty.
        """


class Backend(Protocol):
    """One implementation of attention. Any backend's backward pass can follow any other's forward pass: they share only out and lse."""

    @property
    def name(self) -> str: ...

    def refusal(self, problem: Problem, direction: Direction) -> str | None:
        """Why it cannot do this pass of this problem, in words; None where it can."""

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """out [B,H,Sq,D] in the dtype of q, and lse, float32 [B,H,Sq]: the natural logarithm of each row's sum of exponentials.

        A row that sees no key gives 0 and -inf. The problem describes x, is not refused and not empty.
        """

    def backward(
        self, dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem
    ) -> Gradients:
        """The gradients, given that of out, dout [B,H,Sq,D]."""


def half_precision_on_ampere(p: Problem) -> Iterator[str]:
    """The rule of kernels built on Ampere's tensor cores."""
    if p.dtype not in (torch.float16, torch.bfloat16):
        yield f"takes float16 and bfloat16, not {dtype_name(p.dtype)}"
    if p.capability is not None and p.capability < (8, 0):
        yield f"needs compute capability 8.0 or newer; this GPU has {version(p)}"


def on_cuda(p: Problem) -> Iterator[str]:
    """The rule of what runs on NVIDIA GPUs only."""
    if p.device.type != "cuda":
        yield f"needs a CUDA GPU; the tensors are on {p.device}"


def head_size_up_to(limit: int, p: Problem) -> Iterator[str]:
    """The rule of a largest head size."""
    if p.head_dim > limit:
        yield f"takes head sizes up to {limit}, not {p.head_dim}"


def no_bias(p: Problem) -> Iterator[str]:
    """The rule of kernels that add nothing to the scores."""
    if p.bias != "none":
        yield f"takes no {'mask' if p.bias == 'bool' else 'bias'} (causal and window excepted)"


def no_softcap(p: Problem) -> Iterator[str]:
    """The rule of kernels that leave the scores as they are."""
    if p.softcap:
        yield "takes no softcap"


def ordered_sums(p: Problem, direction: Direction) -> Iterator[str]:
    """The rule of backward passes whose order of addition varies."""
    if direction == "backward" and p.deterministic:
        yield "adds gradients in an order that varies from run to run"


def version(p: Problem) -> str:
    """`9.0`."""
    return "none" if p.capability is None else f"{p.capability[0]}.{p.capability[1]}"


def widened(x: Inputs, head_dim: int) -> Inputs:
    """The same problem at a larger head size: zeros added to q and k change no score, and those added to v give columns to cut off."""
    more = head_dim - x.q.shape[3]
    return (
        x
        if more == 0
        else x._replace(q=pad(x.q, (0, more)), k=pad(x.k, (0, more)), v=pad(x.v, (0, more)))
    )


def loadable_rows(x: Inputs) -> Inputs:
    """The same problem with rows that kernels can load, of a head size that is a multiple of 8."""
    wide = widened(x, -(-x.q.shape[3] // 8) * 8)
    q, k, v = loadable(wide.q), loadable(wide.k), loadable(wide.v)
    return (
        wide if q is wide.q and k is wide.k and v is wide.v else Inputs(q, k, v, x.bias, x.ragged)
    )


def like(x: Tensor, model: Tensor) -> Tensor:
    """`x` laid out as torch.empty_like lays out one like `model` with its heads' elements side by side; copied only where it is not."""
    if x.stride() == model.stride() and (model.is_contiguous() or _dense(model)):
        return x
    target = torch.empty_like(side_by_side(model))
    return x if x.stride() == target.stride() else target.copy_(x)


def side_by_side(x: Tensor) -> Tensor:
    """Whose layout an answer has: that of x, unless its heads' elements are scattered."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _dense(x: Tensor) -> bool:
    """Whether a head's elements lie side by side and all fill their stretch of memory: torch.empty_like then keeps its strides."""
    return x.stride(-1) == 1 and x.numel() == 1 + sum(
        (size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)
    )
