"""Describe a problem without its data: the sizes, strides and target that kernels depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.blocks import BlockLists, BlockShape
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import ALIGNMENT, Argument, Pointer

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 512
MLA_KEYS, MLA_VALUES = 576, 512
"""The head sizes of MLA in its absorbed form, whose values are the first elements of its keys."""
_UNLIMITED = 1 << 30


class Target(NamedTuple):
    """Describe a GPU by its compute capability (90 for 9.0) and its multiprocessors."""

    capability: int
    processors: int


INTERPRETED = Target(80, 16)
"""The target of Triton's interpreter: any that splits the keys of a small problem."""


NO_BLOCKS: dict[str, Argument] = {
    **dict.fromkeys(("counts_ptr", "lists_ptr", "numbers_ptr", "bits_ptr")),
    **dict.fromkeys(("lists_batch", "lists_head", "lists_width"), 0),
}
"""The arguments of kernels without a block mask."""


def list_arguments(shape: BlockShape | None, *, by_keys: bool) -> dict[str, Argument]:
    """Return the arguments about a block mask, of kernels whose programs own queries, or keys."""
    if shape is None:
        return NO_BLOCKS
    batches, heads, of_queries, of_keys = shape.shape
    lists, width = (of_keys, of_queries) if by_keys else (of_queries, of_keys)
    index = Pointer(torch.int32, False)
    return {
        **dict.fromkeys(("counts_ptr", "lists_ptr", "numbers_ptr"), index),
        "bits_ptr": Pointer(torch.uint8),
        "lists_batch": 0 if batches == 1 else heads * lists,
        "lists_head": 0 if heads == 1 else lists,
        "lists_width": width,
    }


def list_sides(shape: BlockShape | None) -> dict[str, object]:
    """Return the tl.constexpr arguments about a block mask."""
    return {"ROWS": shape.rows if shape else 0, "COLS": shape.cols if shape else 0}


class Strides(NamedTuple):
    """The strides of a tensor [B,H,rows,elements] as kernels take them; None where one is not
    used."""

    batch: int | None
    head: int | None
    row: int | None
    element: int | None


@dataclass(frozen=True)
class Form:
    """What the portable kernels compile in of a problem, besides sizes."""

    left: bool
    right: bool
    softcap: bool
    bias: Literal["bool", "float"] | None
    bias_step: int
    """See `BiasLayout.step`."""
    ragged: bool
    alibi: bool


class Layout(NamedTuple):
    """Hold a tensor's sizes and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def like(self) -> Layout:
        """Return the layout of torch.empty_like of such a tensor."""
        example = torch.empty_strided(self.shape, self.strides, device="meta")
        return Layout(self.shape, torch.empty_like(example).stride())

    @classmethod
    def contiguous(cls, shape: tuple[int, ...]) -> Layout:
        """Return the layout of a new tensor."""
        return cls(shape, torch.empty(shape, device="meta").stride())

    def named(self, name: str) -> dict[str, Strides]:
        """Return the strides as a kernel argument, <name>_strides."""
        return {f"{name}_strides": Strides(*self.strides)}


class BiasLayout(NamedTuple):
    """Describe a bias or mask [B,H,Sq,Sk], expanded where it is broadcast."""

    dtype: torch.dtype
    strides: tuple[int, ...]
    """0 where it is broadcast."""
    step: int
    """The keys, a power of two, that a kernel may load at once: so many divide its strides, its
    first element lies at a multiple of 16 bytes, and there is memory behind its last."""


def bias_layout(bias: Tensor) -> BiasLayout:
    """Return the layout of a bias [B,H,Sq,Sk]."""
    strides, step = bias.stride(), 1
    if strides[3] == 1 and bias.numel() and bias.data_ptr() % ALIGNMENT == 0:
        size = bias.element_size()
        steps = [(n - 1, s) for n, s in zip(bias.shape[:3], strides[:3], strict=True) if n > 1]
        step = math.gcd(ALIGNMENT // size, *(s for _, s in steps))
        last = bias.storage_offset() + sum(n * s for n, s in steps)
        end = last + -(-bias.shape[3] // step) * step
        if end * size > bias.untyped_storage().nbytes():
            step = math.gcd(step, bias.shape[3])
    return BiasLayout(bias.dtype, strides, step)


class Geometry(NamedTuple):
    """Describe a problem without its data; hashable, so that a plan serves all problems like it."""

    q: Layout
    k: Layout
    v: Layout
    dtype: torch.dtype
    aligned: bool
    """True if q, k and v (and out and dout in the backward pass) begin at multiples of 16 bytes."""
    device: torch.device
    rules: Rules
    ragged: tuple[int, int, int] | None
    """(sequences, longest_q, longest_k)."""
    bias: BiasLayout | None
    slopes: int | None = None
    """The stride between the batches of ALiBi's slopes, 0 for one set of slopes; None: no ALiBi."""
    blocks: BlockShape | None = None
    sink: bool = False

    @property
    def heads(self) -> int:
        """Return the number of query heads."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """Return the number of query heads that share a key head."""
        return self.heads // self.k.shape[1]

    @property
    def sequences(self) -> int:
        """Return the number of sequences, side by side or end to end."""
        return self.ragged[0] if self.ragged else self.q.shape[0]

    @property
    def longest(self) -> tuple[int, int]:
        """Return the most queries and the most keys of a sequence."""
        return self.ragged[1:] if self.ragged else (self.q.shape[2], self.k.shape[2])

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Return left and right, but None for a side that hides no key.

        A window that lies beyond all keys is moved next to them.
        """
        queries, keys = self.longest
        left, right, *_ = self.rules
        least = -queries - keys
        left = None if left is None or left >= keys - 1 else max(left, least)
        right = None if right is None or right >= queries - 1 else max(right, least)
        return left, right

    @property
    def head_dim(self) -> int:
        """Return the head size of queries and keys."""
        return self.q.shape[3]

    @property
    def out(self) -> Layout:
        """Return the layout of the output, torch.empty_like of queries with the heads of values."""
        return Layout((*self.q.shape[:3], self.v.shape[3]), self.q.strides).like()

    @property
    def bias_strides(self) -> Strides:
        """Return the strides of the bias, of rows and elements None where it is broadcast."""
        batch, head, row, element = self.bias.strides if self.bias else (0, 0, 0, 0)
        return Strides(batch, head, row or None, element or None)

    def pointer(self) -> Pointer:
        """Return the kernel argument of a tensor in the problem's dtype."""
        return Pointer(self.dtype, self.aligned)

    def arguments(self) -> dict[str, Argument]:
        """Return the run-time arguments that all attention kernels share."""
        left, right, scale, softcap = self.rules
        return {
            "q_ptr": self.pointer(),
            "k_ptr": self.pointer(),
            "v_ptr": self.pointer(),
            "bias_ptr": bias_pointer(self.bias) if self.bias else None,
            "starts_q_ptr": Pointer(torch.int32, False) if self.ragged else None,
            "starts_k_ptr": Pointer(torch.int32, False) if self.ragged else None,
            "slopes_ptr": None if self.slopes is None else Pointer(torch.float32, False),
            "slopes_batch": self.slopes or 0,
            **self.q.named("q"),
            **self.k.named("k"),
            **self.v.named("v"),
            "bias_strides": self.bias_strides,
            "heads": self.heads,
            "group": self.group,
            "seq_q": self.q.shape[2],
            "seq_k": self.k.shape[2],
            "total_q": self.q.shape[2],
            "left": _bound(left),
            "right": _bound(right),
            "scale": float(scale),
            "qk_scale": self.rules.factor,
            "softcap": float(softcap),
        }

    def constants(self) -> dict[str, object]:
        """Return the tl.constexpr arguments that all attention kernels share."""
        bias: Literal["bool", "float"] | None = None
        if self.bias:
            bias = "bool" if self.bias.dtype == torch.bool else "float"
        form = Form(
            self.rules.left is not None,
            self.rules.right is not None,
            self.rules.softcap != 0.0,
            bias,
            self.bias.step if self.bias else 1,
            self.ragged is not None,
            self.slopes is not None,
        )
        return {"HEAD_DIM": self.head_dim, "FORM": form}


def name_strides(name: str, axes: str, strides: tuple[int, ...]) -> dict[str, int]:
    """Return strides as arguments of a kernel that takes each: stride_<name><axis>."""
    return {f"stride_{name}{axis}": stride for axis, stride in zip(axes, strides, strict=True)}


def unit_of(*layouts: Layout) -> int:
    """Return what divides all strides of tensors, as far as kernels must be told so: 8 or 1.

    That 16 divides an argument, Triton sees itself.
    """
    strides = [stride for x in layouts for stride in x.strides[:3]]
    return 8 if all(s % 8 == 0 for s in strides) and any(s % 16 for s in strides) else 1


def bias_pointer(bias: BiasLayout) -> Pointer:
    """Return the kernel argument of a bias, which may be a view that begins anywhere."""
    kind = torch.uint8 if bias.dtype == torch.bool else bias.dtype
    return Pointer(kind, bias.step > 1)


def _bound(limit: int | None) -> int:
    """Return a side of the window as a number that cannot overflow in a kernel."""
    return _UNLIMITED if limit is None else max(-_UNLIMITED, min(limit, _UNLIMITED))


def geometry_of(key: tuple[object, ...]) -> Geometry:
    """Return the geometry that a key describes.

    Raises:
        ValueError: if the portable kernels cannot compute the problem.
    """
    (shape_q, strides_q, shape_k, strides_k, shape_v, strides_v, *rest) = key
    geometry = Geometry(
        Layout(shape_q, strides_q),  # type: ignore[arg-type]
        Layout(shape_k, strides_k),  # type: ignore[arg-type]
        Layout(shape_v, strides_v),  # type: ignore[arg-type]
        *rest,  # type: ignore[arg-type]
    )
    if geometry.dtype not in DTYPES:
        raise ValueError(
            f"the portable kernels take float16, bfloat16 and float32; got {geometry.dtype}"
        )
    if not 1 <= geometry.head_dim <= LARGEST_HEAD:
        raise ValueError(
            f"the portable kernels take head sizes 1 to {LARGEST_HEAD}; got {geometry.head_dim}"
        )
    if geometry.blocks and (geometry.ragged or geometry.bias):
        raise ValueError("the portable kernels take no bias and no ragged batch with a block mask")
    if geometry.ragged and geometry.bias:
        raise ValueError(
            "the portable kernels take a bias or mask for batches of one length only; got one for"
            " ragged sequences"
        )
    return geometry


def geometry_key(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    blocks: BlockLists | None = None,
    sink: Tensor | None = None,
) -> tuple[object, ...]:
    """Return everything about a call except its data, quick to make and to hash: the key of a
    plan."""
    return (
        q.shape,
        q.stride(),
        k.shape,
        k.stride(),
        v.shape,
        v.stride(),
        q.dtype,
        (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT == 0,
        q.device,
        rules,
        None if ragged is None else (ragged.sequences, ragged.longest_q, ragged.longest_k),
        None if bias is None else bias_layout(bias),
        None
        if slopes is None
        else slopes.stride(0)
        if slopes.dim() == 2 and len(slopes) > 1
        else 0,
        None if blocks is None else blocks.geometry,
        sink is not None,
    )


def target_of(device: torch.device) -> Target:
    """Return the target of a device. Raises ValueError for a GPU that is too old for the
    kernels."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    if properties.major < 8:
        raise ValueError(
            "the portable kernels need compute capability 8.0 or newer, because Triton supports no"
            f" older tensor cores; {properties.name} has {properties.major}.{properties.minor}"
        )
    return Target(10 * properties.major + properties.minor, properties.multi_processor_count)
