"""Offer kernels for the tasks of the catalog, with the spaces of their configurations.

On a GPU the templates are Triton kernels (`row_kernels`). On a CPU there is one: the reference on
blocks of rows that stay in the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import EPS, TASKS, Sizes
from gpudeck.accel.search.verdict import Source

ROWWISE = ("softmax", "rms_norm", "layer_norm", "swiglu", "gelu")
REDUCING = ("row_sum", "cross_entropy")
ATTENTION = ("attention", "attention_gradients", "decoding")
TEMPLATED = (*ROWWISE, *REDUCING, *ATTENTION)
TARGET = (90, 132)
"""Compute capability and multiprocessors for which tiles are chosen where there is no GPU."""
_WIDEST = 16384
"""The longest row that a program keeps in registers."""
_HELD = 128
"""The most elements of a thread."""


@dataclass(frozen=True)
class Template:
    """Describe a kernel with parameters that can be searched."""

    name: str
    space: Space
    make: Callable[[Config], Source]
    """Names the function with a configuration."""
    launch: Callable[[Config], Source] | None = None
    """Names what returns the kernel's `KernelCall`, or those of several kernels, if they can be
    compiled without a GPU."""
    usual: tuple[Config, ...] = ()
    """Configurations that are tried first."""


def template_of(task: str, dtype: torch.dtype, sizes: Sizes, device: str) -> Template:
    """Return the template of a task for a kind of device, `cuda` or `cpu`.

    Those of attention on a GPU are in `attention_templates`.

    Raises:
        ValueError: if there is none.
    """
    if task not in TEMPLATED:
        raise ValueError(f"{task} has no template. These have: {', '.join(TEMPLATED)}")
    given = {"task": task}
    if device == "cpu":
        space = Space({"block": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096]})
        return Template("torch in blocks of rows", space, lambda c: _source("in_blocks", given, c))
    columns = sizes["columns"]
    if columns > _WIDEST:
        raise ValueError(f"the template of {task} has rows of up to {_WIDEST} elements")
    space = Space({"rows": [1, 2, 4, 8, 16], "warps": [1, 2, 4, 8, 16]}, fits_registers(columns))
    shape = given | {"dtype": str(dtype).removeprefix("torch.")}
    known = shape | {"sizes": dict(sizes)}
    return Template(
        "triton rows", space, lambda c: _source("triton_rows", given, c),
        lambda c: _source("row_call", known, c),
    )  # fmt: skip


def here() -> Any:
    """Return the GPU of this machine, or the one for which tiles are chosen without any."""
    from gpudeck.accel.attention.kernels.geometry import Target, target_of

    device = find_device().torch_device
    return target_of(device) if device.type == "cuda" else Target(*TARGET)


def fits_registers(columns: int) -> Callable[[Config], bool]:
    """Return what tells whether a thread holds so few elements of its rows that they do not
    spill; kernels that spill by far take minutes to compile."""
    block = max(16, 1 << (columns - 1).bit_length())

    def fits(config: Config) -> bool:
        return config["rows"] * block <= _HELD * 32 * config["warps"]

    return fits


def _source(entry: str, given: Mapping[str, Any], config: Config) -> Source:
    return Source(__name__, entry, {**given, "config": config})


def in_blocks(task: str, config: Config) -> Callable[..., Tensor]:
    """Return a function that computes the reference on blocks of rows."""
    reference, block = TASKS[task].reference, config["block"]

    def call(*inputs: Tensor) -> Tensor:
        rows = inputs[0].shape[0]
        parts = [
            reference(*(x[at : at + block] if x.dim() > 1 else x for x in inputs))
            for at in range(0, rows, block)
        ]
        return torch.cat(parts)

    return call


def triton_rows(task: str, config: Config) -> Callable[..., Tensor]:
    """Return a function that launches the Triton kernel; it is compiled for each shape."""
    from gpudeck.accel.runtime.launch import prepare

    launches: dict[object, Callable[..., None]] = {}

    def call(*inputs: Tensor) -> Tensor:
        x = inputs[0]
        rows, columns = x.shape
        out = torch.empty_like(x) if task in ROWWISE else x.new_empty(rows)
        at = (rows, columns, x.dtype, x.device)
        if at not in launches:
            dtype = str(x.dtype).removeprefix("torch.")
            shape = {"rows": rows, "columns": columns}
            launches[at] = prepare(row_call(task, dtype, shape, config), x.device)
        launches[at](*inputs, out)
        return out

    return call


def row_call(task: str, dtype: str, sizes: Sizes, config: Config) -> Any:
    """Return the launch of the Triton kernel, before there are tensors.

    Inputs are contiguous, and lie at multiples of 16 bytes.
    """
    from gpudeck.accel.runtime.call import KernelCall, Pointer
    from gpudeck.accel.search import row_kernels

    pointer = Pointer(getattr(torch, dtype))
    rows, columns = sizes["rows"], sizes["columns"]
    block = max(16, 1 << (columns - 1).bit_length())
    two = pointer if task in ("swiglu", "cross_entropy") else None
    arguments: dict[str, Any] = {"x_at": pointer, "y_at": two, "out_at": pointer}
    arguments |= {"rows": rows, "columns": columns}
    kernel = row_kernels.reduce_rows
    if task in ROWWISE:
        kernel = row_kernels.compute_rows
        arguments |= {
            "w_at": pointer if task.endswith("norm") else None,
            "b_at": pointer if task == "layer_norm" else None,
            "eps": EPS,
        }
    constants = {"OP": task, "ROWS": config["rows"], "BLOCK": block}
    grid = -(-rows // config["rows"])
    return KernelCall(
        kernel, grid, arguments, constants, {"num_warps": config["warps"], "num_stages": 1}
    )
