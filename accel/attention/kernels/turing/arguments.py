"""State the argument of the kernels once, for the host and for CUDA C++."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

_C_TYPES: dict[Any, str] = {
    ctypes.c_void_p: "void*", ctypes.c_int64: "i64", ctypes.c_int32: "int", ctypes.c_float: "float",
}  # fmt: skip
_LAID_OUT = ("q", "k", "v", "bias", "out", "dout", "dq", "dk", "dv")
_POINTERS = {
    "lse": "float*", "dlse": "float*", "delta": "float*", "dbias": "float*", "slopes": "float*",
    "starts_q": "int*", "starts_k": "int*",
}  # fmt: skip
_NUMBERS = (
    "batch", "heads", "group", "seq_q", "seq_k", "longest_q", "longest_k", "left", "right",
)  # fmt: skip
_FACTORS = ("scale", "factor", "softcap")


class LaidOut(ctypes.Structure):
    """A tensor [batch, heads, rows, elements] with its strides in elements; the innermost is 1."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("head", ctypes.c_int64),
        ("row", ctypes.c_int64),
    )


class Arguments(ctypes.Structure):
    """What the kernels are given.

    `bias_element` is the stride of a bias between keys, `slopes_batch` that of ALiBi's slopes
    between sequences, `dlse` is null if lse has no gradient.
    """

    _fields_ = (
        *((name, LaidOut) for name in _LAID_OUT),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("bias_element", ctypes.c_int64),
        ("slopes_batch", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in _NUMBERS),
        *((name, ctypes.c_float) for name in _FACTORS),
    )


def declare() -> str:
    """Return the structures in CUDA C++, as `Tensor` and `Problem`."""
    structures = {"Tensor": LaidOut, "Problem": Arguments}
    told = (f"struct {name} {{\n{''.join(_lines(x))}}};\n" for name, x in structures.items())
    return "typedef long long i64;\n" + "".join(told)


def _lines(structure: Any) -> Iterator[str]:
    for name, kind in structure._fields_:
        named = "Tensor" if kind is LaidOut else _POINTERS.get(name) or _C_TYPES[kind]
        yield f"    {named} {name};\n"
