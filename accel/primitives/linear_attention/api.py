"""Validate the inputs of linear attention, choose a backend and run it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.kinds import KINDS, Kind, retention_decay
from gpudeck.accel.primitives.linear_attention.problem import DTYPES, Operands
from gpudeck.accel.runtime.given import in_order, require_tensors
from gpudeck.accel.runtime.refusals import NAMED, CannotCompute, check_name
from gpudeck.language.text import Text, join_texts, phrase

BACKENDS = ("triton", "torch", "reference")
_KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_LARGEST = 256
"""The largest head size of the kernels: a state of 256 by 64 values is what registers hold."""


class LinearOutput(NamedTuple):
    """Hold the output [B,T,H,Dv], the final states [N,H,Dk,Dv] float32, and what ran."""

    out: Tensor
    state: Tensor
    backend: str


@dataclass(frozen=True)
class LinearChoice:
    """Name the backend that runs, the reason, and why each of the others cannot or does not."""

    backend: str
    reason: Text
    refusals: dict[str, Text]

    def __str__(self) -> str:
        lines = [f"{self.backend} ({self.reason})"]
        return "\n".join([*lines, *(f"  {name}: {why}" for name, why in self.refusals.items())])


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kind: str,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    scale: float | None = None,
    state: Tensor | None = None,
    starts: Tensor | None = None,
    backend: str = "auto",
) -> LinearOutput:
    """Compute linear attention of one kind, with gradients with respect to every tensor.

    Shapes: q and k are [B,T,Hk,Dk] and v is [B,T,H,Dv]; Hk divides H. All three have one dtype
    (float16, bfloat16 or float32; float64 except with `triton`) and one device. T may be 0.

    Args:
        kind: a name in KINDS: `retention`, `gla`, `ssd` (Mamba-2: q is C, k is B, v is x dt and
            decay is A dt), `gdn`, `kda` or `rwkv7`.
        decay: the logarithm of each token's decay, at most 0: [B,T,H] for `ssd` and `gdn`,
            [B,T,H,Dk] for `gla`, `kda` and `rwkv7`, None for `retention`. Values below -10 count
            as -10, and those of `rwkv7`, whose decays are above 0.545, below -1 as -1. Values above
            0 are refused on a CPU; a GPU is not waited for to see them.
        beta: how much a delta rule corrects, [B,T,H], for `gdn` and `kda`, whose keys should have
            length 1.
        a, b: for `rwkv7`, the key that is erased and what replaces it, [B,T,H,Dk]; a should have
            length 1 and b be no longer.
        scale: the factor of the output, 1/sqrt(Dk) by default; 1 for `rwkv7` and `ssd`.
        state: the state before the first token, [N,H,Dk,Dv], zeros by default. N is B, or the
            number of sequences of a ragged batch.
        starts: int tensor [N+1]: sequences lie end to end in a batch of 1; sequence n is made of
            the tokens from starts[n] to starts[n+1]. Its values are read on the host.
        backend: `auto` or a name in BACKENDS.

    Returns:
        The output in the dtype of v, the states after the last tokens, and the backend that ran.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
        TypeError: if what must be a tensor is none.
    """
    x = operands(q, k, v, kind, decay, beta, a, b, scale, state, starts)
    choice = choose(x, backend)
    if choice.backend == "triton":
        from gpudeck.accel.primitives.linear_attention.fused import fused as run
    elif choice.backend == "torch":
        from gpudeck.accel.primitives.linear_attention.chunked import chunked as run
    else:
        from gpudeck.accel.primitives.linear_attention.reference import reference as run
    out, last = run(x)
    return LinearOutput(out.to(v.dtype), last, choice.backend)


def explain_linear(q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> LinearChoice:
    """Return what `linear_attention` would run on these tensors, and why."""
    backend = rules.pop("backend", "auto")
    names = ("kind", "decay", "beta", "a", "b", "scale", "state", "starts")
    return choose(operands(q, k, v, *in_order(names, rules)), backend)


def choose(x: Operands, backend: str = "auto") -> LinearChoice:
    """Choose the named backend, or with `auto` the kernels on a GPU and torch elsewhere.

    Raises:
        ValueError: if no backend has this name, or if it cannot compute the problem.
    """
    refusals = {} if (why := _refusal(x)) is None else {"triton": why}
    refusals["reference"] = phrase("computes token by token, for checks only")
    if backend == "auto":
        if "triton" not in refusals:
            reason = phrase("the kernels run on this GPU")
            return LinearChoice("triton", phrase("auto: {sub}", sub=reason), refusals)
        assert why is not None
        passed_over = phrase("not {backend}: it {refusal}", backend="triton", refusal=why)
        reason = join_texts((phrase("the first that can"), passed_over))
        return LinearChoice("torch", phrase("auto: {sub}", sub=reason), refusals)
    check_name(backend, BACKENDS)
    if backend == "triton" and why is not None:
        raise CannotCompute("triton", why, ("torch", "reference"))
    return LinearChoice(backend, NAMED, refusals)


def _refusal(x: Operands) -> Text | None:
    """Return why the Triton kernels cannot compute the problem, or None."""
    if x.q.dtype not in _KERNEL_DTYPES:
        return phrase("takes float16, bfloat16 and float32")
    if max(x.q.shape[3], x.v.shape[3]) > _LARGEST:
        return phrase("takes head sizes up to {limit}", limit=_LARGEST)
    from gpudeck.accel.primitives.linear_attention.fused import refuse

    return refuse(x.q.device)


def operands(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kind: str | None,
    decay: Tensor | None,
    beta: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    scale: float | None,
    state: Tensor | None,
    starts: Tensor | None,
) -> Operands:
    """Return the operands of the recurrence.

    Raises:
        ValueError: says what was given and what is possible.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind is called {kind!r}. There are: {', '.join(KINDS)}")
    what = KINDS[kind]
    maybe = {"decay": decay, "beta": beta, "a": a, "b": b, "state": state, "starts": starts}
    require_tensors(q=q, k=k, v=v, **{name: x for name, x in maybe.items() if x is not None})
    _check_vectors(q, k, v)
    batch, length, heads = v.shape[:3]
    _check_given(what, {"decay": decay, "beta": beta, "a": a, "b": b})
    expected = {
        "decay": (batch, length, heads, *(q.shape[3:] if what.decay == "channel" else ())),
        "beta": (batch, length, heads),
        "a": (batch, length, heads, q.shape[3]),
        "b": (batch, length, heads, q.shape[3]),
    }
    for name, given in (("decay", decay), ("beta", beta), ("a", a), ("b", b)):
        if given is not None and tuple(given.shape) != expected[name]:
            raise ValueError(
                f"{name} of {kind} must be {list(expected[name])}; got {list(given.shape)}"
            )
    if decay is not None:
        _check_decay(decay)
    bounds = _check_starts(starts, batch, length)
    sequences = batch if bounds is None else len(bounds) - 1
    if state is not None and tuple(state.shape) != (sequences, heads, q.shape[3], v.shape[3]):
        raise ValueError(
            f"state must be {[sequences, heads, q.shape[3], v.shape[3]]}; got {list(state.shape)}"
        )
    if scale is None:
        scale = 1.0 if kind in ("rwkv7", "ssd") else q.shape[3] ** -0.5
    if not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number; got {scale}")
    if decay is None:
        decay = retention_decay(heads, q.device).expand(batch, length, heads)
    precise = torch.promote_types(q.dtype, torch.float32)
    return Operands(
        q,
        v,
        decay.to(precise),
        scale,
        what.rule,
        k if what.rule.plain else None,
        k if beta is not None else a,
        b,
        beta,
        None if state is None else state.to(precise),
        bounds,
    )


def _check_decay(decay: Tensor) -> None:
    """Check values on a CPU only: for those on a GPU the host would have to wait."""
    if decay.is_cpu and not torch.compiler.is_compiling() and (decay > 0).any():
        raise ValueError(
            "decay is the logarithm of a factor of at most 1, so at most 0; got up to"
            f" {decay.max().item():.3g}. Give decay.log() if these are the factors"
        )


def _check_vectors(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(
            "q, k and v must be [B,T,H,D]; got"
            f" {list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )
    if q.shape != k.shape or q.shape[:2] != v.shape[:2] or v.shape[2] % q.shape[2]:
        raise ValueError(
            "q and k must have one shape, v the same batch and length, and the heads of v must be"
            f" a multiple of those of k; got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        )
    if len({x.dtype for x in (q, k, v)}) > 1 or q.dtype not in DTYPES:
        raise ValueError(
            "q, k and v must have one floating dtype of 16, 32 or 64 bits; got"
            f" {q.dtype}, {k.dtype} and {v.dtype}"
        )
    if len({x.device for x in (q, k, v)}) > 1:
        raise ValueError(
            f"q, k and v must be on one device; got {q.device}, {k.device} and {v.device}"
        )


def _check_given(kind: Kind, given: dict[str, Tensor | None]) -> None:
    wanted = {*kind.needs, *(() if kind.decay == "fixed" else ("decay",))}
    missing = sorted(name for name in wanted if given[name] is None)
    if missing:
        raise ValueError(f"{kind.name} needs {' and '.join(missing)}")
    unused = sorted(name for name, x in given.items() if x is not None and name not in wanted)
    if unused:
        own = "; its decays are fixed, one for each head" if kind.decay == "fixed" else ""
        raise ValueError(f"{kind.name} does not take {' and '.join(unused)}{own}")


def _check_starts(starts: Tensor | None, batch: int, length: int) -> tuple[int, ...] | None:
    """Return where the sequences of a ragged batch begin, as numbers."""
    if starts is None:
        return None
    bounds = tuple(int(n) for n in starts.tolist())
    ordered = all(x <= y for x, y in itertools.pairwise(bounds))
    if batch != 1 or len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != length or not ordered:
        raise ValueError(
            f"starts must rise from 0 to the number of tokens, {length}, in a batch of 1; got"
            f" {list(bounds[:8])} in a batch of {batch}"
        )
    return bounds
