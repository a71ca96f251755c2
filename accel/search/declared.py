"""Read a file that declares a kernel together with all of it that may be searched.

The file has these names; `fits`, `DTYPE` and `USUAL` may be missing:

    SIZES = {"rows": (4096, 1, 300)}    # the one that is timed, and the range of hidden ones
    SPACE = {"BLOCK": (512, 1024), "num_warps": (4, 8)}    # constants and launch options
    USUAL = ({"BLOCK": 1024, "num_warps": 4},)             # what is tried first
    DTYPE = "float32"                                      # of all inputs and of the result

    def shapes(rows): ...        # returns the shapes of the inputs
    def reference(*inputs): ...  # computes the same in plain torch
    def make(config): ...        # returns the function of the inputs with a configuration
    def fits(config): ...        # tells whether a combination can be of use
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gpudeck.accel.search.measures import SLACK
from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import Size, Sizes, Task
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Source

_NEEDED = ("SIZES", "SPACE", "shapes", "reference", "make")


def read_declared(file: Path) -> tuple[Task, Template]:
    """Return the task and the template of a file, whose code is run.

    Raises:
        ValueError: if the file declares no kernel, or what it declares does not fit together.
        OSError: if it cannot be read.
    """
    file = file.resolve(strict=True)
    module = _loaded(file)
    if missing := [name for name in _NEEDED if not hasattr(module, name)]:
        raise ValueError(f"{file.name} has no {', '.join(missing)}")
    dtype = getattr(torch, str(getattr(module, "DTYPE", "float32")), None)
    if dtype not in SLACK:
        raise ValueError("DTYPE is one of float32, float16 and bfloat16")
    task = _task(file, module, dtype)
    space = Space(_choices(module.SPACE), getattr(module, "fits", lambda config: True))
    usual = tuple(dict(config) for config in getattr(module, "USUAL", ()))
    if odd := next((c for c in usual if not space.holds(c)), None):
        raise ValueError(f"USUAL has {odd}, which is not in SPACE")

    def make(config: Config) -> Source:
        return Source(str(file), "make", {"config": config})

    return task, Template(f"{file.name} {_digest(file)}", space, make, usual=usual)


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"declared_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise ValueError(f"{file.name} cannot be loaded: {type(e).__name__}: {e}") from e
    return module


def _choices(space: Any) -> Mapping[str, Sequence[int]]:
    try:
        return {str(name): [int(value) for value in values] for name, values in space.items()}
    except (AttributeError, TypeError, ValueError) as e:
        raise ValueError("SPACE maps each name to whole numbers") from e


def _sizes(given: Any) -> dict[str, Size]:
    try:
        sizes = {str(name): Size(*map(int, values)) for name, values in given.items()}
    except (AttributeError, TypeError, ValueError) as e:
        raise ValueError("SIZES maps each name to the timed size, the least and the most") from e
    if not all(0 < size.low <= size.high and size.timed > 0 for size in sizes.values()):
        raise ValueError("SIZES has a size below 1, or a least one above the most")
    return sizes


def _task(file: Path, module: ModuleType, dtype: torch.dtype) -> Task:
    def shapes_at(sizes: Sizes) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(shape) for shape in module.shapes(**sizes))

    def on_meta(sizes: Sizes) -> Any:
        inputs = (torch.empty(s, dtype=dtype, device="meta") for s in shapes_at(sizes))
        return module.reference(*inputs)

    def products(sizes: Sizes) -> float:
        with FlopCounterMode(display=False) as counter:
            on_meta(sizes)
        return float(counter.get_total_flops())

    sizes = _sizes(module.SIZES)
    timed = {name: size.timed for name, size in sizes.items()}
    try:
        found, flops = on_meta(timed), products(timed)
    except Exception as e:
        raise ValueError(f"reference cannot compute shapes{timed}: {e}") from e
    if not isinstance(found, torch.Tensor) or found.dtype != dtype:
        raise ValueError(f"reference must return one tensor of {dtype}")
    return Task(
        f"{file.stem}-{_digest(file)}", sizes, shapes_at, lambda s: tuple(on_meta(s).shape),
        module.reference,
        lambda s: products(s) or float(math.prod(on_meta(s).shape)),
        dtype=dtype, own=False, product=flops > 0, written=Source(str(file), "reference"),
    )  # fmt: skip


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()[:8]
