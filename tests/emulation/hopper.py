"""The Hopper kernels of `gpudeck.accel.attention.kernels.hopper`, their own source, on the emulated
machine.

Each module is executed with imports of its own: Triton's become the emulator's, torch has a
pretended GPU. With `changes` the source is altered first, which is how the tests plant defects.
"""

from __future__ import annotations

import builtins
import importlib
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from gpudeck.accel.runtime.call import KernelCall, Pointer, TensorBox
from tests.emulation import gluon
from tests.emulation.machine import Machine
from tests.emulation.memory import fence
from tests.emulation.values import Whole

ATTENTION = "gpudeck.accel.attention.kernels.hopper"
PRODUCTS = "gpudeck.accel.primitives.gemm"
SERVING = "gpudeck.accel.serving"
_BLOCKS = ("gpudeck.accel.primitives.tiles.ring", "gpudeck.accel.primitives.tiles.warpgroup")
"""Modules in Gluon of which kernels are built."""
Changes = Mapping[str, tuple[str, str]]
"""Of a file of the package, what is replaced by what."""
_NUMBER = count()
_PLAIN = (
    "gpudeck.accel.primitives.gemm.operands",
    "gpudeck.accel.primitives.gemm.problem",
    "gpudeck.accel.serving.linear",
)
"""Modules of these packages without kernels."""


class Hopper:
    """The kernels of a package on a GPU of `processors` multiprocessors, each of which runs
    `resident` CTAs of a grid at a time.

    Every launch takes the order in which things happen from `seed`, counted up from launch to
    launch.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        processors: int = 3,
        resident: int = 1,
        changes: Changes | None = None,
        package: str = ATTENTION,
    ) -> None:
        self._package = package
        self._seeds = count(seed)
        self._at_once = processors * resident
        self._changes = dict(changes or {})
        self._modules: dict[str, ModuleType] = {}
        self._foreign = _foreign(self._machine, processors)

    @property
    def forward(self) -> ModuleType:
        return self.module("forward")

    @property
    def backward(self) -> ModuleType:
        return self.module("backward")

    def module(self, name: str) -> ModuleType:
        """A module of the package, emulated. Raises ValueError where a change does not find its
        place."""
        return self._emulated(f"{self._package}.{name}")

    def _emulated(self, name: str) -> ModuleType:
        if name not in self._modules:
            self._modules[name] = self._execute(name)
        return self._modules[name]

    def _machine(self) -> Machine:
        return Machine(next(self._seeds), self._at_once)

    def _execute(self, name: str) -> ModuleType:
        package, _, last = name.rpartition(".")
        path = Path(importlib.import_module(package).__path__[0]) / f"{last}.py"
        source = path.read_text()
        if path.name in self._changes:
            old, new = self._changes[path.name]
            if old not in source:
                raise ValueError(f"{path.name} does not have {old!r}")
            source = source.replace(old, new)
        module = ModuleType(f"tests.emulation.kernels_{next(_NUMBER)}.{name}")
        module.__dict__["__builtins__"] = {
            **vars(builtins),
            "__import__": self._import,
            "range": _range,
        }
        filename = f"<emulated {path.name} {module.__name__}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        sys.modules[module.__name__] = module  # Dataclasses look their module up.
        exec(compile(source, filename, "exec"), module.__dict__)
        return module

    def _import(self, name: str, *args: Any) -> Any:
        if name in self._foreign:
            return self._foreign[name]
        if name in _BLOCKS or (name.startswith(f"{self._package}.") and name not in _PLAIN):
            return self._emulated(name)
        if name.partition(".")[0] in ("triton", "torch"):
            raise ImportError(f"{name} is not emulated")
        return importlib.__import__(name, *args)


def _range(*bounds: int) -> Iterator[int]:
    """Bounds known at run time give numbers known at run time."""
    kind: Callable[[int], int] = Whole if any(isinstance(x, Whole) for x in bounds) else int
    return map(kind, range(*bounds))


def _foreign(machine: Callable[[], Machine], processors: int) -> dict[str, Any]:
    """Return the names that the kernels' modules import from elsewhere."""
    language = _Module(gluon, max=gluon.greatest, sum=gluon.total, join=gluon.join_pairs)

    def jit(body: Callable[..., Any] | None = None, **options: Any) -> Any:
        del options
        return jit if body is None else gluon.Kernel(body, machine)

    cuda = SimpleNamespace(
        device=nullcontext,
        current_device=lambda: 0,
        get_device_properties=lambda device: SimpleNamespace(multi_processor_count=processors),
    )
    experimental = SimpleNamespace(gluon=SimpleNamespace(jit=jit, language=language))
    instructions = SimpleNamespace(
        fence_async_shared=fence,
        mbarrier=gluon.mbarrier,
        tma=gluon.tma,
        warpgroup_mma=gluon.warpgroup_mma,
        warpgroup_mma_wait=gluon.warpgroup_mma_wait,
    )
    alone = SimpleNamespace(
        gdc_launch_dependents=lambda: None, gdc_wait=lambda: None
    )  # here one kernel ends before the next begins
    return {
        "gpudeck.accel.runtime.gluon": SimpleNamespace(
            tma_load=gluon.tma_load, tma_store=gluon.tma_store, thread_barrier=lambda: None
        ),
        "gpudeck.accel.runtime.launch": SimpleNamespace(prepare=_prepared),
        "torch": _Module(torch, cuda=cuda),
        "triton": SimpleNamespace(jit=jit, language=language, experimental=experimental),
        "triton.language": SimpleNamespace(jit=jit, language=language),
        "triton.language.extra.cuda": alone,
        "triton.experimental": experimental,
        "triton.experimental.gluon": experimental.gluon,
        "triton.experimental.gluon.language.nvidia.ampere": SimpleNamespace(mma_v2=gluon.mma_v2),
        "triton.experimental.gluon.language.nvidia.hopper": instructions,
    }


def _prepared(call: KernelCall, device: torch.device) -> Callable[..., None]:
    """Replace `gpudeck.accel.runtime.launch.prepare`: return a function of the kernel's tensors in
    its order."""
    del device

    def launch(*tensors: torch.Tensor) -> None:
        given = iter(tensors)
        asked = {
            name: _argument(call.arguments[name], given)
            for name in call.kernel.names
            if name in call.arguments
        }
        assert next(given, None) is None
        call.kernel[call.programs](**asked, **call.constants, **call.options)

    return launch


def _argument(asked: Pointer | TensorBox | float | None, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(asked, TensorBox):
        box = gluon.TensorDescriptor()
        shape, strides, block = list(asked.shape), list(asked.strides), list(asked.block)
        box.__dict__.update(
            base=next(tensors), shape=shape, strides=strides, block_shape=block, layout=asked.layout
        )
        return box
    return next(tensors) if isinstance(asked, Pointer) else asked


class _Module:
    """A module with some of its names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
