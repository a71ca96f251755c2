"""Run PyTorch's attention kernels by name, below scaled_dot_product_attention.

They need no global switch and have their own backward passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import (
    Backend,
    Gradients,
    align_rows,
    half_precision_on_ampere,
    head_size_up_to,
    no_bias,
    no_softcap,
    on_cuda,
    ordered_sums,
    own_key_visible,
    side_by_side,
)
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.lessons.records import Direction
from gpudeck.accel.runtime.refusals import this_gpu_has
from gpudeck.language.text import Text, phrase

_ATEN = torch.ops.aten
_MASKED_HEAD = 128
"""The largest head that cuDNN is given with a mask or bias."""
_BIAS_STEP = 8
"""The efficient kernel takes biases whose strides are multiples of so many elements."""
_VECTOR = 16
"""The number of floats in the widest vector of a CPU (AVX-512).

torch 2.13 takes a row whose scores are all NaN, and too few to fill a vector, for one that sees no
key, and answers 0.
"""


class FlashCuda(Backend):
    """FlashAttention-2 as PyTorch builds it.

    It works on [B,S,H,D], takes windows and ragged batches, and aligns bottom-right itself.
    """

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from half_precision_on_ampere(p)
        yield from head_size_up_to(256, p)
        yield from no_bias(p)
        yield from no_softcap(p)
        yield from ordered_sums(p, direction)
        yield from own_key_visible(p)
        # The kernel treats a right limit of at least the longest sequence's keys as no limit, and
        # no right limit beside a left one as such a limit.
        if p.windowed and p.seq_q > p.seq_k + 1 and (p.right is None or p.right >= p.seq_k):
            yield phrase(
                "misreads windows to the right where there are more queries ({queries}) than keys"
                " ({keys})",
                queries=p.seq_q,
                keys=p.seq_k,
            )

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8."""
        q, k, v = (_rows_first(t, x) for t in align_rows(x)[:3])
        out, lse, *_ = _ATEN._flash_attention_forward(
            q,
            k,
            v,
            *_starts(x, problem),
            0.0,
            problem.causal,
            False,
            scale=problem.scale,
            **_window(problem),
        )
        out = _heads_first(out, x)[..., : problem.head_dim]
        # The kernel marks a row that sees no key with +inf, so that its backward pass gets weights
        # of 0.
        lse = lse.masked_fill(lse == torch.inf, -torch.inf) if _may_be_blind(problem) else lse
        return out, lse if x.ragged is None else lse.unsqueeze(0)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass, which adds into dq in an order that varies."""
        wide = align_rows(x)
        d, o = (_rows_first(t, x) for t in align_rows(Inputs(dout, out, out))[:2])
        if _may_be_blind(problem):
            lse = lse.masked_fill(lse == -torch.inf, torch.inf)
        q, k, v = (_rows_first(t, x) for t in wide[:3])
        starts = _starts(x, problem)
        # Dense batches have no starts, but the operation's signature requires tensors, as it
        # requires a random state although there is no dropout.
        none = torch.empty(0, dtype=torch.int64, device=q.device)
        state = torch.zeros(2, dtype=torch.uint64, device=q.device)
        lse = lse.contiguous() if x.ragged is None else lse.squeeze(0).contiguous()
        grads = _ATEN._flash_attention_backward(
            d,
            q,
            k,
            v,
            o,
            lse,
            *starts,
            0.0,
            problem.causal,
            state,
            none,
            scale=problem.scale,
            **_window(problem),
        )
        return Gradients(*(_heads_first(g, x)[..., : problem.head_dim] for g in grads))


class FlashCpu(Backend):
    """PyTorch's blocked attention for CPUs."""

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from no_bias(p)
        yield from no_softcap(p)
        if direction == "backward" and p.dtype == torch.float64:
            yield phrase("takes no float64 in the backward pass: lse is kept in float32")
        if p.windowed:
            yield phrase("takes no window on a CPU")
        if p.ragged:
            yield phrase("takes no ragged batches on a CPU")

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass without the queries that see no key; the causal mask fits what
        remains."""
        q, k, v = self._seeing(x, problem)
        out, lse = _ATEN._scaled_dot_product_flash_attention_for_cpu(
            q,
            k,
            v,
            0.0,
            problem.mask == "square",
            attn_mask=_lower_right(problem),
            scale=problem.scale,
        )
        if problem.seq_k < _VECTOR:
            spoilt = _find_spoilt(q, k, problem)
            out, lse = (
                out.masked_fill(spoilt.unsqueeze(-1), torch.nan),
                lse.masked_fill(spoilt, torch.nan),
            )
        return _with_blind(out, lse.float(), x, problem.blind)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass without the queries that see no key."""
        blind = problem.blind
        # The kernel reads lse in the layout of its own forward pass, with the heads innermost.
        laid = lse[:, :, blind:].transpose(1, 2).contiguous().transpose(1, 2)
        dq, dk, dv = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
            dout[:, :, blind:].contiguous(),
            *self._seeing(x, problem),
            out[:, :, blind:].contiguous(),
            laid,
            0.0,
            problem.mask == "square",
            attn_mask=_lower_right(problem),
            scale=problem.scale,
        )
        whole = x.q.new_zeros(x.q.shape)
        whole[:, :, blind:] = dq
        return Gradients(whole, dk, dv)

    def _seeing(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (side_by_side(t) for t in x[:3])
        return q[:, :, problem.blind :], k, v


def _find_spoilt(q: Tensor, k: Tensor, problem: Problem) -> Tensor:
    """Return the rows [B,H,Sq] that have a NaN, or see a key with one."""
    keys = k.isnan().any(dim=-1).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    seen = (
        keys.cummax(dim=-1).values[..., k.shape[2] - q.shape[2] :]
        if problem.causal
        else keys.any(dim=-1, keepdim=True)
    )
    return q.isnan().any(dim=-1) | seen


class Flash(Backend):
    """PyTorch's FlashAttention for the problem's device."""

    _cuda, _cpu = FlashCuda(), FlashCpu()

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        return self._of(p).rules(p, direction)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass of the device's implementation."""
        return self._of(problem).forward(x, problem)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass of the device's implementation."""
        return self._of(problem).backward(dout, x, out, lse, problem)

    def _of(self, problem: Problem) -> FlashCuda | FlashCpu:
        return self._cpu if problem.device.type == "cpu" else self._cuda


class Cudnn(Backend):
    """The attention of cuDNN."""

    def takes_narrow(self, p: Problem) -> bool:
        """Return True for the sizes of MLA on Hopper, for which it has kernels."""
        return p.capability == (9, 0) and (p.head_dim, p.value_dim) == (192, 128)

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        yield from half_precision_on_ampere(p)
        yield from head_size_up_to(256 if p.capability and p.capability[0] == 9 else 128, p)
        if p.bias != "none":
            yield from self._bias_rules(p, direction)
        yield from no_softcap(p)
        yield from ordered_sums(p, direction)
        if p.seq_k == 1:
            yield phrase("takes no single key")
        odd = 128 < -(-p.head_dim // 8) * 8 < 256 and not self.takes_narrow(p)
        if direction == "backward" and odd:
            yield phrase(
                "takes head sizes up to 128, and 256, in the backward pass, not {n}", n=p.head_dim
            )
        if p.mask in ("lower right", "window"):
            yield phrase("masks causal sequences of one length only")
        if p.ragged:
            yield phrase("takes no ragged batches here")

    def _bias_rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        if p.capability != (9, 0):
            yield phrase("has been tried with masks and biases on compute capability 9.0 only")
        if p.head_dim > _MASKED_HEAD:
            yield phrase(
                "takes head sizes up to {limit} with a mask or bias, not {n}",
                limit=_MASKED_HEAD,
                n=p.head_dim,
            )
        if direction == "backward" and p.bias_grad:
            yield phrase("has no gradient of a bias")

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, padded to head sizes of a multiple of 8, without queries that
        see no key."""
        wide = align_rows(x)
        blind = problem.blind
        out, lse, *_ = _ATEN._scaled_dot_product_cudnn_attention(
            wide.q[:, :, blind:],
            wide.k,
            wide.v,
            _expand_bias(wide, problem),
            problem.wants_lse,
            0.0,
            problem.mask == "square",
            False,
            scale=problem.scale,
        )
        if not problem.wants_lse:
            lse = out.new_empty(out.shape[:3], dtype=torch.float32)
        return _with_blind(out[..., : problem.out_dim], lse.view(lse.shape[:3]), x, blind)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass, which adds into dq in an order that varies."""
        wide, blind = align_rows(x), problem.blind
        d, o = align_rows(Inputs(dout, out, out))[:2]
        seed = torch.zeros((), dtype=torch.int64, device=x.q.device)
        dq, dk, dv = _ATEN._scaled_dot_product_cudnn_attention_backward(
            d[:, :, blind:],
            wide.q[:, :, blind:],
            wide.k,
            wide.v,
            o[:, :, blind:],
            lse[:, :, blind:].unsqueeze(-1).contiguous(),
            seed,
            seed,
            _expand_bias(wide, problem),
            None,
            None,
            problem.seq_q - blind,
            problem.seq_k,
            0.0,
            problem.mask == "square",
            scale=problem.scale,
        )
        whole = dq
        if blind:
            whole = wide.q.new_zeros(wide.q.shape)
            whole[:, :, blind:] = dq
        size = problem.head_dim
        return Gradients(whole[..., :size], dk[..., :size], dv[..., : problem.out_dim])


class Efficient(Backend):
    """The memory-efficient kernel of xFormers as PyTorch builds it.

    It also takes float32 and runs on GPUs before Ampere.
    """

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        if p.bias != "none" and p.mask != "none":
            # the bias's gradient would be undefined where causality hides the key
            yield phrase("takes no mask or bias beside a causal mask")
        yield from no_softcap(p)
        yield from ordered_sums(p, direction)
        if p.dtype == torch.float64:
            yield phrase("takes float16, bfloat16 and float32, not {name}", name="float64")
        if p.dtype == torch.bfloat16 and p.capability is not None and p.capability < (8, 0):
            needed = phrase("takes bfloat16 from compute capability {version} on", version="8.0")
            yield this_gpu_has(needed, p.capability)
        if p.heads != p.kv_heads:
            yield phrase("takes no grouped heads")
        if p.windowed:
            yield phrase("takes no window")
        if p.ragged:
            yield phrase("takes no ragged batches here")

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass on [B,S,H,D], without the queries that see no key."""
        wide, blind = align_rows(x), problem.blind
        q, k, v = (t.transpose(1, 2) for t in (wide.q[:, :, blind:], wide.k, wide.v))
        out, lse, *_ = _ATEN._efficient_attention_forward(
            q,
            k,
            v,
            _expand_bias(wide, problem, of_rows=_BIAS_STEP),
            None,
            None,
            None,
            None,
            0.0,
            self._mask(problem),
            True,
            scale=problem.scale,
        )
        lse = lse[:, :, : problem.seq_q - blind]
        if x.bias is not None:  # the kernel's logarithm is 0 in rows that see no key
            lse = lse.masked_fill(_hides_all(x.bias), -torch.inf)
        return _with_blind(out.transpose(1, 2)[..., : problem.head_dim], lse, x, blind)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass without the queries that see no key.

        The kernel reads lse in rows of a multiple of 32, and out contiguous in memory with rows
        first.
        """
        wide, blind = align_rows(x), problem.blind
        seeing = problem.seq_q - blind
        padded = lse.new_zeros(*lse.shape[:2], -(-seeing // 32) * 32)
        padded[:, :, :seeing] = lse[:, :, blind:]
        if x.bias is not None:  # any finite number gives weights of 0 there
            padded.masked_fill_(torch.isneginf(padded), 0.0)
        d, o = align_rows(Inputs(dout, out, out))[:2]
        rows = [t.transpose(1, 2) for t in (d[:, :, blind:], wide.q[:, :, blind:], wide.k, wide.v)]
        seed = torch.zeros((), dtype=torch.int64, device=x.q.device)
        dq, dk, dv, dbias = _ATEN._efficient_attention_backward(
            *rows,
            _expand_bias(wide, problem, of_rows=_BIAS_STEP),
            o[:, :, blind:].transpose(1, 2).contiguous(),
            None,
            None,
            seeing,
            problem.seq_k,
            padded,
            0.0,
            seed,
            seed,
            self._mask(problem),
            problem.bias_grad,
            scale=problem.scale,
        )
        whole = wide.q.new_zeros(wide.q.shape)
        whole[:, :, blind:] = dq.transpose(1, 2)
        found = (
            g[..., : problem.head_dim] for g in (whole, dk.transpose(1, 2), dv.transpose(1, 2))
        )
        if x.bias is None or not problem.bias_grad:
            return Gradients(*found)
        return Gradients(*found)._replace(bias=dbias.sum_to_size(x.bias.shape))

    def _mask(self, problem: Problem) -> int:
        """Return the kernel's number for no mask or the bottom-right causal mask."""
        return 0 if problem.mask == "none" else 2


def _expand_bias(x: Inputs, problem: Problem, of_rows: int = 1) -> Tensor | None:
    """Return the bias or mask as what is added to the scores of the rows that may see a key.

    Shapes: [B,H,Sq,Sk]. Its strides are multiples of `of_rows` elements, but for the last, 1.
    """
    bias = x.bias
    if bias is None:
        return None
    if bias.dtype == torch.bool:
        hidden = torch.zeros(bias.shape, dtype=x.q.dtype, device=bias.device)
        bias = hidden.masked_fill_(~bias, -torch.inf)
    if bias.shape[2] > 1:
        bias = bias[:, :, problem.blind :]
    bias = bias.expand(*bias.shape[:3], problem.seq_k)
    if bias.stride(3) != 1 or any(step % of_rows for step in bias.stride()[:3]):
        wide = bias.new_zeros(*bias.shape[:3], -(-problem.seq_k // of_rows) * of_rows)
        wide[..., : problem.seq_k] = bias
        bias = wide[..., : problem.seq_k]
    return bias.expand(problem.batch, problem.heads, problem.seq_q - problem.blind, -1)


def _hides_all(bias: Tensor) -> Tensor:
    """Return which rows a bias or mask hides all keys from, broadcastable to [B,H,Sq]."""
    return ~bias.any(-1) if bias.dtype == torch.bool else torch.isneginf(bias.amax(-1))


def _with_blind(out: Tensor, lse: Tensor, x: Inputs, blind: int) -> tuple[Tensor, Tensor]:
    """Put 0 and -inf for the first `blind` queries, which were left out, before the other
    outputs."""
    if not blind:
        return out, lse
    whole, whole_lse = x.q.new_zeros(x.like_out.shape), lse.new_full(x.q.shape[:3], -torch.inf)
    whole[:, :, blind:], whole_lse[:, :, blind:] = out, lse
    return whole, whole_lse


def _rows_first(t: Tensor, x: Inputs) -> Tensor:
    """Return the tensor as [B,S,H,D], or [T,H,D] in a ragged batch."""
    return t.transpose(1, 2) if x.ragged is None else t.squeeze(0).transpose(0, 1)


def _heads_first(t: Tensor, x: Inputs) -> Tensor:
    return t.transpose(1, 2) if x.ragged is None else t.transpose(0, 1).unsqueeze(0)


def _starts(x: Inputs, p: Problem) -> tuple[Tensor | None, Tensor | None, int, int]:
    if x.ragged is None:
        return None, None, p.seq_q, p.seq_k
    # The longest length is an upper bound. With 1 the kernel would pack grouped heads into rows,
    # which fails if a sequence has no query.
    return x.ragged.starts_q, x.ragged.starts_k, max(2, p.seq_q), p.seq_k


def _window(p: Problem) -> dict[str, int]:
    """Return the window as the kernel takes it, with -1 for no limit; causality is another
    argument."""
    if not p.windowed:
        return {}
    return {
        "window_size_left": -1 if p.left is None else p.left,
        "window_size_right": -1 if p.right is None else p.right,
    }


def _may_be_blind(p: Problem) -> bool:
    """Return True if a query may see no key; only the device knows the lengths of ragged
    sequences."""
    return p.blind > 0 or p.ragged or p.windowed


def _lower_right(p: Problem) -> Tensor | None:
    """Return the bottom-right mask of queries that see a key, for a kernel that aligns top-left."""
    if p.mask != "lower right":
        return None
    seen = torch.ones(p.seq_q - p.blind, p.seq_k, dtype=torch.bool, device=p.device).tril(
        p.seq_k - p.seq_q + p.blind
    )
    return torch.zeros(seen.shape, dtype=p.dtype, device=p.device).masked_fill(~seen, -torch.inf)
