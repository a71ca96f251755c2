"""Define what every implementation of attention offers: two passes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpudeck.accel.attention.inputs import Inputs, align
from gpudeck.accel.attention.problem import Problem, Variant, dtype_name
from gpudeck.accel.lessons.records import Direction
from gpudeck.accel.runtime.refusals import this_gpu_has
from gpudeck.language.text import Text, join_texts, phrase

Layout = Literal["bhsd", "bshd"]


class Gradients(NamedTuple):
    """The gradients of q, k, v and the bias, each in the shape of its tensor."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None


Run = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A forward pass that maps q, k and v to out and lse."""


class Backend:
    """One implementation of attention.

    Any backend's backward pass can follow any other's forward pass: they share only out and lse.
    """

    layout: Layout = "bhsd"
    """The layout of q, k and v that costs the implementation least."""
    variants: frozenset[Variant] = frozenset()
    """What the implementation offers of what a problem may ask for beyond the common rules."""
    adds_sink = False
    """True if the forward pass adds the sink itself; `add_sink` does it after the others."""

    def load(self) -> None:
        """Import what the passes need, and raise what that raises if it is missing or broken."""

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason why this pass of the problem cannot be computed."""
        return iter(())

    def missing(self) -> Text | None:
        """Return why it is not installed, or None; it is asked last, since this takes longest."""
        return None

    def takes_narrow(self, p: Problem) -> bool:
        """Return True if the passes take values with smaller heads than those of keys, as this
        problem has them; else they are padded with zeros before."""
        return False

    def prepare(self, x: Inputs, problem: Problem) -> Run | None:
        """Return a forward pass for all inputs like these, or None if each call is different.

        The inputs have the same sizes, strides, dtype, device and alignment (to 16 bytes). The
        output has the layout of torch.empty_like(q), and lse is contiguous. The problem is neither
        refused nor empty.
        """
        return None

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Return out [B,H,Sq,D], with the heads of v, in the dtype of q, and lse, float32 [B,H,Sq].

        lse is the natural logarithm of each row's sum of exponentials, or undefined if the
        problem does not want it. A row that sees no key gives
        0 and -inf. The problem describes x, and is neither refused nor empty. A sink is left out
        unless `adds_sink`.
        """
        raise NotImplementedError

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Return the gradients from dout [B,H,Sq,D], the gradient of out.

        If the problem has a sink, out and lse contain it. `dlse` float32 [B,H,Sq], the gradient of
        lse, is given only to backends that offer `lse_grad`; it is 0 where lse is -inf.
        """
        raise NotImplementedError


def half_precision_on_ampere(p: Problem) -> Iterator[Text]:
    """Refuse what kernels for Ampere's tensor cores cannot compute."""
    if p.dtype not in (torch.float16, torch.bfloat16):
        yield phrase("takes float16 and bfloat16, not {name}", name=dtype_name(p.dtype))
    if p.capability is not None and p.capability < (8, 0):
        yield needs_ampere(p)


def on_cuda(p: Problem) -> Iterator[Text]:
    """Refuse tensors that are not on an NVIDIA GPU."""
    if p.device.type != "cuda":
        yield join_texts(
            (phrase("needs a CUDA GPU"), phrase("the tensors are on {name}", name=str(p.device)))
        )


def head_size_up_to(limit: int, p: Problem) -> Iterator[Text]:
    """Refuse head sizes above `limit`."""
    if p.head_dim > limit:
        yield phrase("takes head sizes up to {limit}, not {n}", limit=limit, n=p.head_dim)


def no_bias(p: Problem) -> Iterator[Text]:
    """Refuse a bias or mask."""
    if p.bias == "bool":
        yield phrase("takes no mask (causal and window excepted)")
    elif p.bias != "none":
        yield phrase("takes no bias (causal and window excepted)")


def no_softcap(p: Problem) -> Iterator[Text]:
    """Refuse a softcap."""
    if p.softcap:
        yield phrase("takes no softcap")


def own_key_visible(p: Problem) -> Iterator[Text]:
    """Refuse windows with a negative side."""
    if p.skips_own:
        yield phrase("takes no window with a negative side")


def ordered_sums(p: Problem, direction: Direction) -> Iterator[Text]:
    """Refuse deterministic gradients, for backward passes whose order of addition varies."""
    if direction == "backward" and p.deterministic:
        yield phrase("adds gradients in an order that varies from run to run")


def needs_ampere(p: Problem) -> Text:
    """Return the refusal of GPUs before Ampere."""
    needed = phrase("needs compute capability {version} or newer", version="8.0")
    return this_gpu_has(needed, p.capability)


def needs_hopper(p: Problem) -> Text:
    """Return the refusal of other GPUs than Hopper's."""
    return this_gpu_has(phrase("needs compute capability {version}", version="9.0"), p.capability)


def align_rows(x: Inputs) -> Inputs:
    """Return the problem with rows that kernels can load and head sizes that are multiples of 8.

    Zeros that are added to q and k change no score; those added to v give columns to cut off.
    """
    q, k, v = (align(t if t.shape[3] % 8 == 0 else pad(t, (0, -t.shape[3] % 8))) for t in x[:3])
    return x if q is x.q and k is x.k and v is x.v else x._replace(q=q, k=k, v=v)


def like(x: Tensor, model: Tensor) -> Tensor:
    """Return `x` in the layout of torch.empty_like(model) with contiguous heads, copied if
    necessary."""
    if x.stride() == model.stride() and (model.is_contiguous() or _dense(model)):
        return x
    target = torch.empty_like(side_by_side(model))
    return x if x.stride() == target.stride() else target.copy_(x)


def side_by_side(x: Tensor) -> Tensor:
    """Return the tensor whose layout an output has: x, or a contiguous copy if its heads are
    scattered."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _dense(x: Tensor) -> bool:
    """Return True if heads are contiguous without gaps, so that torch.empty_like keeps the
    strides."""
    return x.stride(-1) == 1 and x.numel() == 1 + sum(
        (size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)
    )
