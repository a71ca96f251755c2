"""Check that a set of tensors is an RWKV-7: the shape of every tensor, by BlinkDL's names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.language.text import phrase

HEAD = 64
"""Channels for each head, in every RWKV-7 model."""
MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")
"""Token-shift coefficients, in the order of the older fused `x_x`."""

_TOP = {
    "emb.weight": "V C",
    "head.weight": "V C",
    "ln_out.weight": "C",
    "ln_out.bias": "C",
    "blocks.0.ln0.weight": "C",
    "blocks.0.ln0.bias": "C",
}
_LAYER = (
    {f"{norm}.{part}": "C" for norm in ("ln1", "ln2", "att.ln_x") for part in ("weight", "bias")}
    | {f"att.{mix}": "C" for mix in MIXES}
    | {f"att.{vector}": "C" for vector in ("w0", "a0", "v0", "k_k", "k_a")}
    | {f"att.{lora}1": f"C {lora}" for lora in "wavg"}
    | {f"att.{lora}2": f"{lora} C" for lora in "wavg"}
    | {f"att.{matrix}.weight": "C C" for matrix in ("receptance", "key", "value", "output")}
    | {"att.r_k": "H 64", "ffn.x_k": "C", "ffn.key.weight": "F C", "ffn.value.weight": "C F"}
)
"""The shape of every tensor of a layer: C channels, H = C / 64 heads, V tokens; the ranks w, a, v,
g and the width F are free.
"""
TUNED = "att.time_state"
"""The tensor of a layer that state tuning makes: the state before the first token, keys by values.
A model has it in all layers or in none.
"""
UNUSED = {"blocks.0.att.v0", "blocks.0.att.v1", "blocks.0.att.v2"}
"""The first layer computes the value residual and does not use it: some files have these tensors,
without effect.
"""


class Shaped(Protocol):
    """Describe what naming and checking need of a tensor: torch's, or an outline."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Self: ...  # noqa: N802
    def dim(self) -> int: ...
    def numel(self) -> int: ...
    def flatten(self) -> Self: ...
    def is_floating_point(self) -> bool: ...
    def __getitem__(self, index: Any, /) -> Self: ...


S = TypeVar("S", bound=Shaped)


@dataclass(frozen=True)
class Outline:
    """Describe a tensor without its values: shape, and dtype as in a .safetensors header (F32,
    BF16).
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def T(self) -> Outline:  # noqa: N802
        return Outline(self.shape[::-1], self.dtype)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def flatten(self) -> Outline:
        return Outline((self.numel(),), self.dtype)

    def is_floating_point(self) -> bool:
        return self.dtype.startswith(("F", "BF"))

    def __getitem__(self, index: int) -> Outline:
        return Outline(self.shape[1:], self.dtype)


def checked(tensors: dict[str, S], source: Path) -> dict[str, S]:
    """Return the tensors of an RWKV-7 with vectors squeezed, after checking that none is missing or
    extra.

    Raises:
        ModelError: A tensor is missing, extra, or of another shape or type.
    """
    others = (name for name in tensors if not name.endswith(TUNED))
    if older := next((name for name in others if ".time_" in name), None):
        raise ModelError(
            phrase(
                "{file} holds an older RWKV (it has {older}); only RWKV-7 can be used.",
                file=str(source),
                older=older,
            )
        )
    sizes: dict[str, int] = {"64": HEAD}
    found: dict[str, S] = {}
    for name, shape in _expected(tensors):
        # Ranks and widths may differ from layer to layer.
        known = sizes if name in _TOP else {dim: sizes[dim] for dim in ("64", "V", "C", "H")}
        if name not in tensors:
            raise ModelError(
                phrase(
                    "{file} lacks the tensor {name}. The download is incomplete, or this is"
                    " not an RWKV-7.",
                    file=str(source),
                    name=name,
                )
            )
        found[name] = _shaped(name, tensors[name], shape.split(), known, source)
        if name == "emb.weight":
            _split_heads(sizes, source)
    _check_ranks(found, source)
    if extra := sorted(set(tensors) - set(found)):
        raise ModelError(
            phrase(
                "{file} has tensors RWKV-7 does not ({names}): another dialect, it cannot be used.",
                file=str(source),
                names=f"{extra[0]}{', ...' if len(extra) > 1 else ''}",
            )
        )
    return found


def _expected(tensors: Mapping[str, Shaped]) -> Iterator[tuple[str, str]]:
    layers = 1 + max(
        (int(m[1]) for name in tensors if (m := re.match(r"blocks\.(\d{1,4})\.", name))), default=0
    )
    parts = dict(_LAYER)
    if any(name.endswith(TUNED) for name in tensors):
        parts[TUNED] = "H 64 64"
    yield from _TOP.items()
    for i in range(layers):
        yield from (
            (name, shape)
            for part, shape in parts.items()
            if (name := f"blocks.{i}.{part}") not in UNUSED
        )


def _split_heads(sizes: dict[str, int], source: Path) -> None:
    if sizes["C"] % HEAD:
        raise ModelError(
            phrase(
                "{file} has {value} channels, not a multiple of {n} (the head size "
                "of RWKV-7); it cannot be used.",
                file=str(source),
                value=sizes["C"],
                n=HEAD,
            )
        )
    sizes["H"] = sizes["C"] // HEAD


def _shaped(name: str, tensor: S, shape: list[str], sizes: dict[str, int], source: Path) -> S:
    given = list(tensor.shape)
    if len(shape) == 1:
        tensor = tensor.flatten() if tensor.numel() == max(given, default=0) else tensor
    if not tensor.is_floating_point():
        raise ModelError(
            phrase(
                "{name} in {file} has dtype {dtype}, expected a floating-point type.",
                name=name,
                file=str(source),
                dtype=str(tensor.dtype),
            )
        )
    expected = [sizes.get(dim) for dim in shape]
    if tensor.dim() != len(shape) or any(
        n < 1 or n != (known or n) for n, known in zip(tensor.shape, expected, strict=True)
    ):
        raise ModelError(
            phrase(
                "{name} in {file} has shape {given}, expected [{names}].",
                name=name,
                file=str(source),
                given=str(given),
                names=", ".join(str(n or "any") for n in expected),
            )
        )
    sizes |= zip(shape, tensor.shape, strict=True)
    return tensor


def _check_ranks(tensors: Mapping[str, Shaped], source: Path) -> None:
    """Check that the two halves of each low-rank pair fit together."""
    for name, first in tensors.items():
        if match := re.fullmatch(r"(blocks\.\d+\.(?:att\.[wavg]|ffn\.))(1|key\.weight)", name):
            other = match[1] + ("2" if match[2] == "1" else "value.weight")
            wanted = [first.shape[1], first.shape[0]]
            if list(tensors[other].shape) != wanted:
                raise ModelError(
                    phrase(
                        "{other} in {file} has shape {shape}, expected {wanted}.",
                        other=other,
                        file=str(source),
                        shape=str(list(tensors[other].shape)),
                        wanted=str(wanted),
                    )
                )
