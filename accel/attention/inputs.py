"""Check the tensors given to attention, and lay them out as every backend takes them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpudeck.accel.attention.blocks import BlockLists
from gpudeck.accel.attention.problem import DEVICES, Bias, Problem, Rules, default_scale, dtype_name
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.given import require_tensors

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

LAYOUTS = ("bhsd", "bshd")
ALIGNMENT = 16
"""The number of bytes that kernels may load at once."""
A_BLOCK_MASK = "a BlockMask, which create_block_mask of FlexAttention makes"

Window = tuple[int | None, int | None]


class Inputs(NamedTuple):
    """The tensors of one problem, with any strides.

    Shapes: q [B,H,Sq,D], k and v [B,Hkv,Sk,D]; in a ragged batch [1,H,Tq,D] and [1,Hkv,Tk,D]. The
    heads of v may be smaller.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None
    """[B,H,Sq,Sk], or 1 for any of them: bool (True: visible), or of q's dtype, added to the
    scores."""
    sink: Tensor | None = None
    """[H] of any floating-point dtype: one more score in the softmax of every row of a head."""
    slopes: Tensor | None = None
    """float32 [H] or [B,H]: the slopes of ALiBi."""
    ragged: Ragged | None = None
    blocks: BlockLists | None = None
    """Which keys are visible, instead of a bias, a window and a ragged batch."""

    @property
    def like_out(self) -> Tensor:
        """Return a view of q with the shape of the output."""
        size = self.v.shape[-1]
        return self.q if size == self.q.shape[-1] else self.q[..., :size]

    def with_mask(self) -> Inputs:
        """Return the problem with a mask of all pairs instead of blocks."""
        return self if self.blocks is None else self._replace(bias=self.blocks.dense(), blocks=None)


def describe(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Window = (None, None),
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    seqlens: Ragged | None = None,
    layout: str = "bhsd",
    deterministic: bool = False,
    sink: Tensor | None = None,
    alibi: Tensor | None = None,
    block_mask: BlockMask | None = None,
) -> Problem:
    """Describe the problem that `accel.attention.attention` would compute for these arguments.

    Raises:
        ValueError: says what was given and what is possible.
    """
    check_types(q, k, v, bias, seqlens, sink, alibi)
    if is_autocast(q):
        q, k, v, bias = cast_as_autocast(q, k, v, bias)
    scale = default_scale(q.shape[-1]) if scale is None and q.dim() else scale
    if q.shape[-1] == k.shape[-1] < v.shape[-1]:
        q, k, v = pad_heads(q, k, v)
    x = arrange(q, k, v, bias, seqlens, layout, sink, alibi, block_mask)
    return problem_of(x, rules_of(x.q, causal, window, scale, softcap), deterministic)


def check_types(
    q: object,
    k: object,
    v: object,
    bias: object = None,
    seqlens: object = None,
    sink: object = None,
    alibi: object = None,
) -> None:
    """Raise TypeError, which says what is possible, if an argument has another type."""
    maybe = {"bias": bias, "sink": sink, "alibi": alibi}
    require_tensors(q=q, k=k, v=v, **{name: x for name, x in maybe.items() if x is not None})
    if seqlens is not None and not isinstance(seqlens, Ragged):
        raise TypeError(
            "seqlens must be an accel.Ragged, which Ragged.of(lengths, device=...) makes; got"
            f" {type(seqlens).__name__}"
        )


def is_autocast(x: Tensor) -> bool:
    """Return whether autocast chooses dtypes on the device of a tensor."""
    return x.device.type in DEVICES and torch.is_autocast_enabled(x.device.type)


def cast_as_autocast(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the tensors in the dtype that autocast gives to scaled_dot_product_attention.

    float64 and masks remain as they are, as they do there.
    """
    dtype = torch.get_autocast_dtype(q.device.type)
    q, k, v = (_cast(t, dtype) for t in (q, k, v))
    return q, k, v, None if bias is None else _cast(bias, dtype)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x


def pad_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors with one head size: the smaller ones padded with zeros.

    Zeros that are added to q and k change no score; those added to v give columns to cut off.
    """
    size = max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == size else pad(x, (0, size - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def arrange(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    seqlens: Ragged | None,
    layout: str,
    sink: Tensor | None = None,
    alibi: Tensor | None = None,
    block_mask: BlockMask | None = None,
) -> Inputs:
    """Return views of the tensors as backends take them, without copying.

    Raises:
        ValueError: if the shapes do not fit together.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is one of {', '.join(LAYOUTS)}; got {layout!r}")
    given = {"q": q, "k": k, "v": v}
    dims = 4 if seqlens is None else 3
    for name, x in given.items():
        if x.layout != torch.strided or x.is_nested:
            raise ValueError(
                f"{name} must be an ordinary dense tensor; got layout {x.layout}, nested:"
                f" {x.is_nested}"
            )
        if x.dim() != dims:
            raise ValueError(f"{name} must be {_form(seqlens, layout)}; got shape {list(x.shape)}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            "q, k and v must have one dtype; got"
            f" {', '.join(f'{n}: {dtype_name(x.dtype)}' for n, x in given.items())}"
        )
    if not q.device == k.device == v.device:
        raise ValueError(
            "q, k and v must have one device; got"
            f" {', '.join(f'{n}: {x.device}' for n, x in given.items())}"
        )
    if seqlens is not None:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    elif layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    _check_shapes(q, k, v)
    if seqlens is not None:
        _check_ragged(seqlens, q, k)
    _check_of_heads(q, sink, alibi)
    bias = None if bias is None else _four_dimensional(bias, q, k, seqlens)
    blocks = None if block_mask is None else _blocks(block_mask, q, k, bias, seqlens)
    return Inputs(q, k, v, bias, sink, alibi, seqlens, blocks)


def as_given(t: Tensor, seqlens: Ragged | None, layout: str) -> Tensor:
    """Return an output [B,H,S,D] (ragged: [1,H,T,D]) in the layout that `arrange` was given."""
    if seqlens is not None:
        return t.squeeze(0).transpose(0, 1)
    return t.transpose(1, 2) if layout == "bshd" else t


def rules_of(
    q: Tensor,
    causal: bool = False,
    window: Window = (None, None),
    scale: float | None = None,
    softcap: float = 0.0,
) -> Rules:
    """Return the rules of a call for queries [..., D], whose default scale is 1/sqrt(D).

    Raises:
        ValueError: says what was given and what is possible.
    """
    if isinstance(scale, Tensor):
        raise ValueError(
            "scale must be a number or None; multiply q by a tensor instead, which then gets its"
            " gradient"
        )
    scale = default_scale(q.shape[-1]) if scale is None else scale
    return Rules(*join_window(causal, window), scale, softcap)


def problem_of(x: Inputs, rules: Rules, deterministic: bool = False) -> Problem:
    """Describe the problem that these inputs pose.

    Raises:
        ValueError: says what was given and what is possible.
    """
    left, right, scale, softcap = rules
    ragged = x.ragged
    seq_q = x.q.shape[2] if ragged is None else ragged.longest_q
    seq_k = x.k.shape[2] if ragged is None else ragged.longest_k
    return Problem(
        batch=x.q.shape[0] if ragged is None else ragged.sequences,
        heads=x.q.shape[1],
        kv_heads=x.k.shape[1],
        seq_q=seq_q,
        seq_k=seq_k,
        head_dim=x.q.shape[3],
        dtype=x.q.dtype,
        device=x.q.device,
        capability=torch.cuda.get_device_capability(x.q.device) if x.q.is_cuda else None,
        scale=scale,
        grad=torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in x[:5]),
        # A side that hides nothing is treated as no limit, because more kernels support that.
        left=None if left is not None and left >= max(0, seq_k - 1) else left,
        right=None if right is not None and right >= max(0, seq_q - 1) else right,
        softcap=softcap,
        bias=_kind(x.bias),
        bias_grad=x.bias is not None and x.bias.requires_grad and torch.is_grad_enabled(),
        ragged=ragged is not None,
        deterministic=deterministic,
        sink=x.sink is not None,
        alibi=x.slopes is not None,
        blocks=_without_window(x, left, right),
        value_dim=x.v.shape[3] if x.v.shape[3] < x.q.shape[3] else 0,
        values_in_keys=_in_keys(x),
    )


def _in_keys(x: Inputs) -> bool:
    narrow = x.v.shape[3] < x.k.shape[3]
    return narrow and x.v.data_ptr() == x.k.data_ptr() and x.v.stride() == x.k.stride()


def check_window(window: object) -> Window:
    """Return `window` as a pair.

    Raises:
        ValueError: if it is not a pair of numbers of keys or None.
    """
    sides = tuple(window) if isinstance(window, tuple | list) else ()
    if len(sides) != 2 or any(
        side is not None and (not isinstance(side, int) or isinstance(side, bool)) for side in sides
    ):
        raise ValueError(
            f"window must be (left, right), each a number of keys or None; got {window!r}"
        )
    return sides[0], sides[1]


def join_window(causal: bool, window: object) -> Window:
    """Return the window of which a causal one hides the keys after the query's own position.

    Raises:
        ValueError: if it is no pair of numbers of keys or None, or if it contains no key.
    """
    left, right = check_window(window)
    if causal:
        right = 0 if right is None else min(right, 0)
    if left is not None and right is not None and left + right < 0:
        more = " with causal" if causal else ""
        raise ValueError(f"window must contain at least one key; got {window!r}{more}")
    return left, right


def align(x: Tensor) -> Tensor:
    """Return `x` if kernels can load it, or else a copy that they can load.

    The elements of a head must be contiguous, and rows must begin at multiples of 16 bytes. The
    copy keeps the order of the dimensions in memory.
    """
    if x.stride(-1) != 1:
        x = x.contiguous()
    return (
        x
        if x.data_ptr() % ALIGNMENT == 0 and are_rows_aligned(x.shape, x.stride(), x.element_size())
        else x.clone()
    )


@lru_cache(maxsize=4096)
def are_rows_aligned(shape: torch.Size, strides: tuple[int, ...], element_size: int) -> bool:
    """Return True if all rows begin at multiples of ALIGNMENT bytes, given that the first does."""
    step = ALIGNMENT // element_size
    return all(
        stride % step == 0
        for stride, size in zip(strides[:-1], shape[:-1], strict=True)
        if size > 1
    )


def _form(seqlens: Ragged | None, layout: str) -> str:
    if seqlens is not None:
        return "[all tokens, heads, head size] with seqlens"
    return (
        "[batch, heads, sequence, head size]"
        if layout == "bhsd"
        else "[batch, sequence, heads, head size]"
    )


def _kind(bias: Tensor | None) -> Bias:
    if bias is None:
        return "none"
    return "bool" if bias.dtype == torch.bool else "float"


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.shape[3] != k.shape[3]:
        wrong = "q and k must have one head size"
    elif k.shape[:3] != v.shape[:3] or v.shape[3] > k.shape[3]:
        wrong = "k and v must have one shape, but for a smaller head size of v"
    elif q.shape[0] != k.shape[0]:
        wrong = "q, k and v must have one batch size"
    else:
        return
    raise ValueError(f"{wrong}; got q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}")


def _blocks(
    mask: BlockMask, q: Tensor, k: Tensor, bias: Tensor | None, seqlens: Ragged | None
) -> BlockLists:
    from torch.nn.attention.flex_attention import BlockMask

    from gpudeck.accel.attention.block_masks import lists_of  # it needs FlexAttention

    if not isinstance(mask, BlockMask):
        raise TypeError(f"block_mask must be {A_BLOCK_MASK}; got {type(mask).__name__}")
    if bias is not None or seqlens is not None:
        raise ValueError("block_mask cannot be given with a bias or seqlens; use one of them")
    return lists_of(mask, (*q.shape[:3], k.shape[2]), q.device)


def _without_window(x: Inputs, left: int | None, right: int | None) -> bool:
    """Return whether there is a block mask, which takes the place of other rules."""
    if x.blocks is not None and (left is not None or right is not None):
        raise ValueError("block_mask cannot be given with causal or window; put them into the mask")
    return x.blocks is not None


def _check_of_heads(q: Tensor, sink: Tensor | None, alibi: Tensor | None) -> None:
    """Check the tensors that hold a number for each head of q [B,H,S,D]."""
    batch, heads = q.shape[:2]
    for name, x, shapes, dtypes in (
        ("sink", sink, ([heads],), (torch.float16, torch.bfloat16, torch.float32, torch.float64)),
        ("alibi", alibi, ([heads], [batch, heads]), (torch.float32,)),
    ):
        if x is None:
            continue
        if list(x.shape) not in shapes or x.dtype not in dtypes or x.device != q.device:
            raise ValueError(
                f"{name} must be {' or '.join(map(str, shapes))} of"
                f" {' or '.join(map(dtype_name, dtypes))} on {q.device}; got {list(x.shape)} of"
                f" {dtype_name(x.dtype)} on {x.device}"
            )
    if alibi is not None and alibi.requires_grad:
        raise ValueError(
            "the slopes of alibi get no gradient; give slope x (key - query) as a bias instead"
        )


def _check_ragged(ragged: Ragged, q: Tensor, k: Tensor) -> None:
    """Check what the host knows; the caller ensures that the starts rise."""
    starts = {"starts_q": ragged.starts_q, "starts_k": ragged.starts_k}
    for name, x in starts.items():
        if (
            x.dtype != torch.int32
            or x.dim() != 1
            or x.device != q.device
            or len(x) < 1
            or not x.is_contiguous()
        ):
            got = (
                f"{dtype_name(x.dtype)} {list(x.shape)} with strides {list(x.stride())} on"
                f" {x.device}"
            )
            raise ValueError(
                f"{name} must be contiguous int32 [sequences + 1] on {q.device}; got {got}."
                " Ragged.of(lengths, device=...) makes them"
            )
    for what, total, given in (
        ("queries", ragged.total_q, q.shape[2]),
        ("keys", ragged.total_k, k.shape[2]),
    ):
        if total is not None and total != given:
            raise ValueError(f"the lengths add up to {total} {what}; got tensors of {given}")
    if len(ragged.starts_q) != len(ragged.starts_k):
        raise ValueError(
            f"starts_q and starts_k must have one length; got {len(ragged.starts_q)} and"
            f" {len(ragged.starts_k)}"
        )


def _four_dimensional(bias: Tensor, q: Tensor, k: Tensor, seqlens: Ragged | None) -> Tensor:
    if seqlens is not None:
        raise ValueError(
            "a bias or mask cannot be given with seqlens: each sequence has another shape. Pad the"
            " batch, or use causal or window"
        )
    if bias.dtype not in (torch.bool, q.dtype):
        raise ValueError(
            f"bias must be bool (True: may be seen) or {dtype_name(q.dtype)} as q is; got"
            f" {dtype_name(bias.dtype)}"
        )
    if bias.device != q.device:
        raise ValueError(f"bias must be on {q.device} as q is; got {bias.device}")
    whole = (*q.shape[:3], k.shape[2])
    if bias.dim() > 4 or any(
        a not in (1, b) for a, b in zip(reversed(bias.shape), reversed(whole), strict=False)
    ):
        raise ValueError(
            f"bias must be broadcastable to [batch, heads, queries, keys] = {list(whole)}; got"
            f" {list(bias.shape)}"
        )
    return bias[(None,) * (4 - bias.dim())]
