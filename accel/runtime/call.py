"""A Triton or Gluon kernel with all that is known before its tensors are, and what Triton compiles for it. Needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ALIGNMENT = 16
"""Bytes. Kernels use wider loads where addresses and strides are known to be multiples of it."""

_TYPES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
}
_OPTIONS = {"enable_fp_fusion": True}  # whose default is about to change


class Pointer(NamedTuple):
    """A tensor argument, as far as the compiled kernel depends on it."""

    dtype: torch.dtype
    aligned: bool = True
    """Whether its address is a multiple of ALIGNMENT."""


class Box(NamedTuple):
    """A tensor argument that the copy engine (TMA) moves in boxes: at an address that is a multiple of ALIGNMENT."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; the last is 1."""
    block: tuple[int, ...]
    layout: object
    """Of a box in shared memory: one of Gluon's."""


@dataclass(frozen=True)
class Call:
    """A kernel with all that is known about one launch of it before the tensors are."""

    kernel: Any
    """A function decorated with triton.jit or gluon.jit."""
    grid: int | tuple[int, int, int]
    """Programs, in one dimension or in three."""
    arguments: Mapping[str, Pointer | Box | int | float | None]
    """Every run-time argument by name. None is a pointer that the kernel does not use."""
    constants: Mapping[str, object]
    """Every tl.constexpr argument by name."""
    options: Mapping[str, int] = field(default_factory=lambda: {"num_warps": 4, "num_stages": 2})
    """num_warps, num_stages and other compiler options. With `launch_pdl` it may begin while the kernel before it on the stream still runs
    (programmatic dependent launch, CUDA C++ Programming Guide): it must wait for that itself, before it touches what that one does.
    """

    @property
    def programs(self) -> tuple[int, int, int]:
        """The grid, in three dimensions."""
        return (self.grid, 1, 1) if isinstance(self.grid, int) else self.grid


def source(call: Call) -> ASTSource:
    """What Triton compiles: types, constants and divisibility, as its own launcher would derive them from the arguments."""
    signature: dict[str, str] = {}
    constants: dict[str, object] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for parameter in call.kernel.params:
        name = parameter.name
        value = call.constants[name] if parameter.is_constexpr else call.arguments[name]
        if (
            parameter.is_constexpr
            or value is None
            or (value == 1 and _specialised(value, parameter))
        ):
            signature[name], constants[name] = "constexpr", value
            continue
        signature[name] = _type_of(value)
        if (
            value.aligned
            if isinstance(value, Pointer)
            else _specialised(value, parameter) and value % ALIGNMENT == 0
        ):
            attributes[(parameter.num,)] = [["tt.divisibility", ALIGNMENT]]
    if not call.kernel.is_gluon():
        return ASTSource(call.kernel, signature, constants, attributes)
    from triton.experimental.gluon._runtime import (
        GluonASTSource,  # only where a kernel is written in it
    )

    places = {(call.kernel.arg_names.index(name),): value for name, value in constants.items()}
    return GluonASTSource(call.kernel, signature, places, attributes)


def compiled(call: Call, capability: int) -> Any:
    """Triton's compiled kernel of `call` for compute capability `capability` (90 for 9.0). Needs no GPU."""
    return triton.compile(
        source(call), target=GPUTarget("cuda", capability, 32), options={**_OPTIONS, **call.options}
    )


def _specialised(value: object, parameter: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not parameter.do_not_specialize


def _type_of(value: object) -> str:
    if isinstance(value, Pointer):
        return f"*{_TYPES[value.dtype]}"
    if isinstance(value, Box):
        return (
            f"tensordesc<{_TYPES[value.dtype]}[{','.join(map(str, value.block))}],{value.layout!r}>"
        )
    if isinstance(value, float):
        return "fp32"
    assert isinstance(value, int)
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
