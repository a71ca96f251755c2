"""What the portable kernels need to know of a problem before its tensors: its sizes, strides and target, as plain values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from accel.attention.ragged import Ragged
from accel.runtime.call import ALIGNMENT, Pointer

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 256
_UNLIMITED = 1 << 30
_LOG2E = 1.4426950408889634


class Target(NamedTuple):
    """A GPU: its compute capability (90 for 9.0) and multiprocessors."""

    capability: int
    processors: int


INTERPRETED = Target(80, 16)
"""What Triton's interpreter on a CPU stands for: any that splits the keys of a small problem will do."""


class Layout(NamedTuple):
    """A tensor's sizes and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def like(self) -> Layout:
        """That of torch.empty_like."""
        example = torch.empty_strided(self.shape, self.strides, device="meta")
        return Layout(self.shape, torch.empty_like(example).stride())

    def named(self, name: str, axes: str) -> dict[str, int]:
        """The strides as kernel arguments: stride_<name><axis>."""
        return {
            f"stride_{name}{axis}": stride for axis, stride in zip(axes, self.strides, strict=True)
        }


class Geometry(NamedTuple):
    """A problem without its data; hashable, so that what was planned for one problem serves the next like it."""

    q: Layout
    k: Layout
    v: Layout
    dtype: torch.dtype
    aligned: bool
    """Whether q, k and v (and in the backward out and dout) begin at multiples of 16 bytes."""
    device: torch.device
    left: int | None
    right: int | None
    scale: float
    softcap: float
    ragged: tuple[int, int, int] | None
    """(sequences, longest_q, longest_k)."""
    bias: tuple[torch.dtype, tuple[int, ...]] | None
    """(dtype, strides)."""

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.k.shape[1]

    @property
    def sequences(self) -> int:
        """Sequences in the batch, or end to end."""
        return self.ragged[0] if self.ragged else self.q.shape[0]

    @property
    def longest(self) -> tuple[int, int]:
        """The most queries and the most keys that a sequence has."""
        return self.ragged[1:] if self.ragged else (self.q.shape[2], self.k.shape[2])

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.q.shape[3]

    def pointer(self) -> Pointer:
        """Of a tensor in the problem's dtype."""
        return Pointer(self.dtype, self.aligned)

    def arguments(self) -> dict[str, Pointer | int | float | None]:
        """The arguments that all attention kernels share."""
        bias_strides = self.bias[1] if self.bias else (0, 0, 0, 0)
        return {
            "q_ptr": self.pointer(),
            "k_ptr": self.pointer(),
            "v_ptr": self.pointer(),
            # An additive bias may be a view that begins anywhere.
            "bias_ptr": Pointer(torch.uint8 if self.bias[0] == torch.bool else self.bias[0], False)
            if self.bias
            else None,
            "starts_q_ptr": Pointer(torch.int32, False) if self.ragged else None,
            "starts_k_ptr": Pointer(torch.int32, False) if self.ragged else None,
            **self.q.named("q", "bhmd"),
            **self.k.named("k", "bhnd"),
            **self.v.named("v", "bhnd"),
            **Layout((), bias_strides).named("b", "bhmn"),
            "heads": self.heads,
            "group": self.group,
            "seq_q": self.q.shape[2],
            "seq_k": self.k.shape[2],
            "total_q": self.q.shape[2],
            "left": _UNLIMITED
            if self.left is None
            else max(-_UNLIMITED, min(self.left, _UNLIMITED)),
            "right": _UNLIMITED
            if self.right is None
            else max(-_UNLIMITED, min(self.right, _UNLIMITED)),
            "scale": float(self.scale),
            "qk_scale": self.scale / self.softcap if self.softcap else self.scale * _LOG2E,
            "softcap": float(self.softcap),
        }

    def constants(self) -> dict[str, object]:
        """The tl.constexpr arguments that all attention kernels share."""
        return {
            "HEAD_DIM": self.head_dim,
            "LEFT": self.left is not None,
            "RIGHT": self.right is not None,
            "SOFTCAP": self.softcap != 0.0,
            "BIAS": None
            if self.bias is None
            else "bool"
            if self.bias[0] == torch.bool
            else "float",
            "RAGGED": self.ragged is not None,
            # Half precision ignores it. For float32, Triton's default would round to 10 bits.
            "PRECISION": "ieee",
        }


def geometry_of(key: tuple[object, ...]) -> Geometry:
    """The geometry behind a `geometry_key`. Raises ValueError for what the portable kernels cannot do."""
    (shape_q, strides_q, shape_k, strides_k, strides_v, *rest) = key
    geometry = Geometry(
        Layout(shape_q, strides_q),  # type: ignore[arg-type]
        Layout(shape_k, strides_k),  # type: ignore[arg-type]
        Layout(shape_k, strides_v),  # type: ignore[arg-type]
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
    if geometry.ragged and geometry.bias:
        raise ValueError(
            "the portable kernels take a bias or mask for batches of one length only; got one for ragged sequences"
        )
    return geometry


def geometry_key(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    left: int | None,
    right: int | None,
    scale: float,
    softcap: float,
    ragged: Ragged | None,
    bias: Tensor | None,
) -> tuple[object, ...]:
    """All of a call but its data, quick to make and to hash: what plans are kept by."""
    return (
        q.shape,
        q.stride(),
        k.shape,
        k.stride(),
        v.stride(),
        q.dtype,
        (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT == 0,
        q.device,
        left,
        right,
        scale,
        softcap,
        None if ragged is None else (ragged.sequences, ragged.longest_q, ragged.longest_k),
        None if bias is None else (bias.dtype, bias.stride()),
    )


def target_of(device: torch.device) -> Target:
    """The target that `device` is. Raises ValueError for a GPU older than the kernels can serve."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    if properties.major < 8:
        raise ValueError(
            "the portable kernels need compute capability 8.0 or newer, because Triton reaches no older tensor cores; "
            f"{properties.name} has {properties.major}.{properties.minor}"
        )
    return Target(10 * properties.major + properties.minor, properties.multi_processor_count)
