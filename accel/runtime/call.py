"""Describe and compile a launch of a Triton or Gluon kernel before its tensors exist.

No GPU is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ALIGNMENT = 16
"""Bytes. Kernels use wider loads where addresses and strides are multiples of this."""

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
_OPTIONS = {"enable_fp_fusion": True}  # explicit, as its default is about to change


class Pointer(NamedTuple):
    """Describe a tensor argument, as far as the compiled kernel depends on it."""

    dtype: torch.dtype
    aligned: bool = True
    """True if its address is a multiple of ALIGNMENT."""


class TensorBox(NamedTuple):
    """Describe a tensor argument that the copy engine (TMA) moves in boxes.

    Its address is a multiple of ALIGNMENT.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; the last is 1."""
    block: tuple[int, ...]
    layout: object
    """The layout of a box in shared memory, one of Gluon's."""


Argument = Pointer | TensorBox | int | float | None | tuple[int | None, ...]
"""A run-time argument of a kernel. None stands for a pointer that the kernel does not use, and a
named tuple for several numbers that the kernel takes as one."""


@dataclass(frozen=True)
class KernelCall:
    """Describe one launch of a kernel, except for its tensors."""

    kernel: Any
    """A function decorated with triton.jit or gluon.jit."""
    grid: int | tuple[int, int, int]
    """The number of programs, in one dimension or in three."""
    arguments: Mapping[str, Argument]
    """Every run-time argument by name."""
    constants: Mapping[str, object]
    """Every tl.constexpr argument by name."""
    options: Mapping[str, int] = field(default_factory=lambda: {"num_warps": 4, "num_stages": 2})
    """num_warps, num_stages and other compiler options.

    With `launch_pdl` the kernel may begin while the one before it on the stream still runs
    (programmatic dependent launch, CUDA C++ Programming Guide). It must then wait for that one
    itself, before it touches the same memory.
    """

    @property
    def programs(self) -> tuple[int, int, int]:
        """Return the grid in three dimensions."""
        return (self.grid, 1, 1) if isinstance(self.grid, int) else self.grid


def source(call: KernelCall) -> ASTSource:
    """Return what Triton compiles: types, constants and divisibility, as its launcher derives
    them."""
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], object] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}

    def describe(value: Any, parameter: Any, *path: int) -> str:
        constant = parameter.is_constexpr or value is None
        if constant or (value == 1 and _is_specialised(value, parameter)):
            constants[path] = value
            return "constexpr"
        if value.aligned if isinstance(value, Pointer) else _is_divisible(value, parameter):
            attributes[path] = [["tt.divisibility", ALIGNMENT]]
        return _type_of(value)

    for parameter in call.kernel.params:
        name, number = parameter.name, parameter.num
        value: Any = call.constants[name] if parameter.is_constexpr else call.arguments[name]
        if _is_group(value) and not parameter.is_constexpr:
            types = (describe(part, parameter, number, i) for i, part in enumerate(value))
            signature[name] = type(value)(*types)
        else:
            signature[name] = describe(value, parameter, number)
    if not call.kernel.is_gluon():
        return ASTSource(call.kernel, signature, constants, attributes)
    # imported only for kernels that are written in Gluon
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource(call.kernel, signature, constants, attributes)


def compile_kernel(call: KernelCall, capability: int) -> Any:
    """Return the kernel that Triton compiles for a compute capability (90 for 9.0)."""
    return triton.compile(
        source(call), target=GPUTarget("cuda", capability, 32), options={**_OPTIONS, **call.options}
    )


def list_given(call: KernelCall, signature: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the types and values of the arguments that a compiled kernel takes, in its order."""
    found: list[tuple[str, Any]] = []
    for name, types in signature.items():
        value = call.arguments.get(name)
        grouped = _is_group(value)
        found += zip(types, value, strict=True) if grouped else [(types, value)]  # type: ignore[arg-type]
    return [(kind, value) for kind, value in found if kind != "constexpr"]


def _is_group(value: object) -> bool:
    return isinstance(value, tuple) and not isinstance(value, Pointer | TensorBox)


def _is_specialised(value: object, parameter: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not parameter.do_not_specialize


def _is_divisible(value: object, parameter: Any) -> bool:
    return _is_specialised(value, parameter) and value % ALIGNMENT == 0


def _type_of(value: object) -> str:
    if isinstance(value, Pointer):
        return f"*{_TYPES[value.dtype]}"
    if isinstance(value, TensorBox):
        return (
            f"tensordesc<{_TYPES[value.dtype]}[{','.join(map(str, value.block))}],{value.layout!r}>"
        )
    if isinstance(value, float):
        return "fp32"
    assert isinstance(value, int)
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
