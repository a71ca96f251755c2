"""Run our own kernels; Triton and the kernels are imported at their first use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import util

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import (
    Backend,
    Gradients,
    Run,
    align_rows,
    half_precision_on_ampere,
    head_size_up_to,
    needs_ampere,
    needs_hopper,
    no_bias,
    on_cuda,
    own_key_visible,
    side_by_side,
)
from gpudeck.accel.attention.inputs import Inputs, align
from gpudeck.accel.attention.kernels.geometry import MLA_KEYS, MLA_VALUES
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.lessons.records import Direction
from gpudeck.language.text import Text, phrase

_AT_ONCE = 8
"""Keys whose biases are loaded at once: 16 bytes."""
_COPIED = 4
"""A bias is copied for wider loads if it has at most this share of the elements of the queries."""
_MOST_QUERIES = 16
_HOPPER, _WIDEST = 256, 512
"""The largest heads of Hopper's kernels, and of the forward pass of q, k and v alone."""
_GRID_LIMIT = 65535
"""The most CTAs in the second and third dimension of a grid."""


class Hopper(Backend):
    """Warp-specialised kernels in Gluon for compute capability 9.0."""

    adds_sink = True
    variants = frozenset({"lse_grad", "alibi"})

    def takes_narrow(self, p: Problem) -> bool:
        """Return True: a box that is wider than the values is filled with zeros."""
        return True

    def load(self) -> None:
        """Import Triton and the kernels."""
        import gpudeck.accel.attention.kernels.hopper.backward
        import gpudeck.accel.attention.kernels.hopper.forward
        import gpudeck.accel.attention.kernels.hopper.forward_wide  # noqa: F401

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        if p.capability is not None and p.capability != (9, 0):
            yield needs_hopper(p)
        yield from half_precision_on_ampere(p)
        added = p.bias != "none" or p.ragged or p.sink or p.alibi or p.value_dim
        yield from head_size_up_to(_HOPPER if added or direction == "backward" else _WIDEST, p)
        if direction == "backward":
            yield from no_bias(p)
            if max(p.batch, p.heads) > _GRID_LIMIT:
                yield phrase(
                    "takes up to {limit} sequences and heads in the backward pass",
                    limit=_GRID_LIMIT,
                )
        yield from _triton(p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8."""
        from gpudeck.accel.attention.kernels.hopper.forward import forward
        from gpudeck.accel.attention.kernels.hopper.forward_wide import plan_run

        q, k, v = align_rows(x)[:3]
        if problem.head_dim > _HOPPER:
            out, lse = plan_run(q, k, v, problem.rules)(q, k, v)
            return out[..., : problem.out_dim], lse
        bias = _expand_bias(x)
        if bias is not None and bias.stride(3) != 1:
            bias = bias.contiguous()
        out, lse = forward(
            q, k, v, problem.rules, ragged=x.ragged, slopes=x.slopes, sink=_float_sink(x), bias=bias
        )
        return out if out.shape[3] == problem.out_dim else out[..., : problem.out_dim], lse

    def prepare(self, x: Inputs, problem: Problem) -> Run | None:
        """Prepare the forward pass if nothing has to be padded or copied."""
        from gpudeck.accel.attention.kernels.hopper.forward import plan_run
        from gpudeck.accel.attention.kernels.hopper.forward_wide import plan_run as plan_wide

        more = (x.ragged, x.slopes, x.sink, x.bias)
        if any(t is not None for t in more) or problem.head_dim % 8 or problem.out_dim % 8:
            return None
        if any(align(t) is not t for t in x[:3]):
            return None
        plan = plan_run if problem.head_dim <= _HOPPER else plan_wide
        return plan(*x[:3], problem.rules)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass, deterministically if requested."""
        from gpudeck.accel.attention.kernels.hopper.backward import backward

        p = problem
        q, k, v = align_rows(x)[:3]
        d, o = align_rows(Inputs(dout, out, out))[:2]
        dq, dk, dv = backward(
            d, q, k, v, o, lse, p.rules, ragged=x.ragged, deterministic=p.deterministic,
            slopes=x.slopes, dlse=dlse,
        )  # fmt: skip
        return Gradients(dq[..., : p.head_dim], dk[..., : p.head_dim], dv[..., : p.out_dim])


class Portable(Backend):
    """Kernels in Triton for compute capability 8.0 to 12.0, which also take masks and biases."""

    adds_sink = True
    variants = frozenset({"lse_grad", "alibi", "blocks"})

    def load(self) -> None:
        """Import Triton and the kernels."""
        import gpudeck.accel.attention.kernels.portable.backward
        import gpudeck.accel.attention.kernels.portable.forward  # noqa: F401

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        if p.dtype == torch.float64:
            yield phrase("takes float16, bfloat16 and float32, not {name}", name="float64")
        if p.capability is not None and p.capability < (8, 0):
            yield needs_ampere(p)
        yield from head_size_up_to(512, p)
        yield from _triton(p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass: any head size up to 512, float32 in full precision without
        tensor cores."""
        from gpudeck.accel.attention.kernels.portable.forward import forward

        q, k, v = (side_by_side(t) for t in x[:3])
        return forward(
            q, k, v, problem.rules, ragged=x.ragged, bias=_expand_bias(x), slopes=x.slopes,
            visible=x.blocks, sink=_float_sink(x),
        )  # fmt: skip

    def prepare(self, x: Inputs, problem: Problem) -> Run | None:
        """Prepare the forward pass if there are only q, k, v and heads are contiguous."""
        from gpudeck.accel.attention.kernels.portable.forward import plan_run

        more = (x.ragged, x.bias, x.slopes, x.blocks, x.sink)
        if any(t is not None for t in more) or any(t.stride(-1) != 1 for t in x[:3]):
            return None
        return plan_run(*x[:3], problem.rules)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass without atomic additions, so that results are always the same."""
        from gpudeck.accel.attention.kernels.portable.backward import backward

        p = problem
        d, q, k, v, o = (side_by_side(t) for t in (dout, x.q, x.k, x.v, out))
        bias = x.bias
        if (
            bias is not None
            and p.bias_grad
            and any(n > 1 and step == 0 for n, step in zip(bias.shape, bias.stride(), strict=True))
        ):
            # the caller wants the gradient of each copy of an expanded bias, not their sum
            x = x._replace(bias=bias.contiguous())
        dq, dk, dv, dbias = backward(
            d, q, k, v, o, lse, p.rules, ragged=x.ragged, bias=_expand_bias(x),
            bias_grad=p.bias_grad, slopes=x.slopes,
            visible=x.blocks, dlse=dlse,
        )  # fmt: skip
        return Gradients(
            dq, dk, dv, None if dbias is None or x.bias is None else dbias.sum_to_size(x.bias.shape)
        )


class Decoding(Backend):
    """A kernel in Triton for a few queries over long keys, which divides the keys among the
    processors."""

    def takes_narrow(self, p: Problem) -> bool:
        """Return True for MLA's absorbed form, whose values are read with the keys."""
        return p.values_in_keys and (p.head_dim, p.value_dim) == (MLA_KEYS, MLA_VALUES)

    def load(self) -> None:
        """Import Triton and the kernel."""
        import gpudeck.accel.attention.kernels.decoding.plan  # noqa: F401

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        yield from half_precision_on_ampere(p)
        if not self.takes_narrow(p):
            yield from head_size_up_to(512, p)
        yield from no_bias(p)
        if p.seq_q > _MOST_QUERIES:
            yield phrase("takes up to {limit} queries, not {n}", limit=_MOST_QUERIES, n=p.seq_q)
        if p.ragged:
            yield phrase("takes no sequences end to end")
        if p.right not in (None, 0):
            yield phrase("takes no window after a query's own position")
        yield from own_key_visible(p)
        if direction == "backward":
            yield phrase("has no backward pass")
        yield from _triton(p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass."""
        q, k, v = (side_by_side(t) for t in x[:3])
        if problem.value_dim:  # a copy of k has the values, too
            v = k[..., : problem.value_dim]
        return self._run(problem)(q, k, v)

    def prepare(self, x: Inputs, problem: Problem) -> Run | None:
        """Prepare the forward pass if there are only q, k, v and heads are contiguous."""
        if x.sink is not None or problem.value_dim or any(t.stride(-1) != 1 for t in x[:3]):
            return None
        return self._run(problem)

    def _run(self, p: Problem) -> Run:
        from gpudeck.accel.attention.kernels.decoding.plan import attend

        def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            out, lse = attend(q, k, v, p.rules, wants_lse=True)
            assert lse is not None
            return out, lse

        return run


def _float_sink(x: Inputs) -> Tensor | None:
    return None if x.sink is None else x.sink.detach().float().contiguous()


def _expand_bias(x: Inputs) -> Tensor | None:
    """Return the bias or mask in full size, with rows that kernels load several keys at a time.

    A small one is copied for that: every sequence, or every head, reads it again.
    """
    bias = x.bias
    if bias is None:
        return None
    rows, keys = bias.shape[2:]
    small = _COPIED * bias.numel() <= x.q.numel()
    if rows > 1 and keys > 1 and bias.stride(2) % _AT_ONCE and small:
        wide = bias.new_empty(*bias.shape[:3], -(-keys // _AT_ONCE) * _AT_ONCE)
        bias = wide[..., :keys].copy_(bias)
    return bias.expand(*x.q.shape[:3], x.k.shape[2])


def _triton(p: Problem) -> Iterator[Text]:
    if not _has_triton():
        yield phrase("needs the package triton, which comes with torch's CUDA builds")


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return util.find_spec("triton") is not None
