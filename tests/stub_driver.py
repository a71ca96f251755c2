"""Provide a CUDA driver that accepts everything and does nothing.

The host's side of a launch can then run without a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from gpudeck.accel.attention import api
from gpudeck.accel.attention.backends import own
from gpudeck.accel.attention.dispatch import choose
from gpudeck.accel.runtime import launch
from gpudeck.accel.runtime.call import KernelCall, TensorBox, source


class Driver:
    """Stand in for the driver's library.

    A launch costs as much as calling a C function with the same number of arguments.
    """

    def __init__(self) -> None:
        self.cuLaunchKernelEx = ctypes.CDLL(
            None
        ).isascii  # reads no memory, and returns 0 for an address
        self.cuTensorMapEncodeTiled = self.cuTensorMapReplaceAddress = lambda *_: 0


def _function(call: KernelCall, device: int | None) -> launch._Function:
    boxes = [
        {"block_size": value.block, "swizzle": 0}
        for value in call.arguments.values()
        if isinstance(value, TensorBox)
    ]
    return launch._Function(source(call), ctypes.c_void_p(0), 128, 0, boxes)


@contextmanager
def stub_driver() -> Iterator[None]:
    """Launch our kernels on tensors of the CPU with a driver that does nothing, so that nothing is
    computed.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "driver", Driver)
        patch.setattr(launch, "_function", _function)
        patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
        patch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
        hopper = SimpleNamespace(
            name="NVIDIA H100 80GB HBM3", uuid="stub", major=9, minor=0, multi_processor_count=132
        )
        patch.setattr(torch.cuda, "get_device_properties", lambda device: hopper)
        for backend in (own.Portable, own.Hopper):
            patch.setattr(backend, "rules", lambda self, problem, _direction: iter(()))
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    """Clear all plans, because a plan for one driver must not serve the other."""
    api._PLANS.clear()
    choose.cache_clear()
    for name in ("hopper.forward", "hopper.backward", "portable.forward", "portable.backward"):
        import_module(f"gpudeck.accel.attention.kernels.{name}")._plan.cache_clear()
    import_module("gpudeck.accel.attention.kernels.hopper.forward")._multiprocessors.cache_clear()
