"""Load compiled CUDA C++ kernels on a GPU, and launch them through the CUDA driver itself."""

from __future__ import annotations

import ctypes

import torch

from gpudeck.accel.runtime.launch import check, driver

_MOST_SHARED_UNASKED = 48 * 1024
_MAX_DYNAMIC_SHARED_SIZE, _SHARED_CARVEOUT = 8, 9  # CUfunction_attribute
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


class CudaFunction:
    """A kernel with one argument, a structure; threads may share it."""

    def __init__(
        self, code: bytes, name: str, threads: int, shared: int, device: torch.device
    ) -> None:
        """Load a kernel.

        Args:
            code: machine code or PTX.
            name: the kernel's name in it.
            threads: the threads of a block.
            shared: the bytes of shared memory of a block.
            device: the GPU, with an index.

        Raises:
            RuntimeError: if the driver refuses.
        """
        self.name, self._threads, self._shared, self._device = name, threads, shared, device.index
        self._handle, module = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.synchronize(device)  # makes the GPU's context current
            check(driver().cuModuleLoadData(ctypes.byref(module), code), f"loading {name}")
            status = driver().cuModuleGetFunction(ctypes.byref(self._handle), module, name.encode())
            check(status, f"finding {name}")
            if shared > _MOST_SHARED_UNASKED:
                self._set(_MAX_DYNAMIC_SHARED_SIZE, shared)
            self._set(_SHARED_CARVEOUT, 100)  # so that several blocks find room at once

    def __call__(self, blocks: int, argument: ctypes.Structure) -> None:
        """Launch the kernel on the current stream of its GPU.

        Raises:
            RuntimeError: if the driver refuses.
        """
        places = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
            sizes = (blocks, 1, 1, self._threads, 1, 1, self._shared)
            status = driver().cuLaunchKernel(self._handle, *sizes, stream, places, None)
            if status == _INVALID_CONTEXT:
                # in a new thread, the runtime's first call makes the GPU's context current
                torch.cuda.synchronize(self._device)
                status = driver().cuLaunchKernel(self._handle, *sizes, stream, places, None)
        check(status, f"launching {self.name}")

    def _set(self, attribute: int, value: int) -> None:
        status = driver().cuFuncSetAttribute(self._handle, attribute, value)
        check(status, f"setting attribute {attribute} of {self.name}")
