"""Launch Triton kernels with little host time, through the CUDA driver itself.

Triton's own launcher is C code that it compiles on the user's machine at first use. This one needs
no C compiler and no Python headers, only the driver's library. `prepare` loads the kernel of a
`KernelCall`, fixes everything but the addresses of its tensors, and returns a `Launch`, which takes
a few microseconds each time.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.runtime.call import (
    KernelCall,
    Pointer,
    TensorBox,
    compile_kernel,
    list_given,
    source,
)

_IN_MAPS = {
    torch.float16: 6,
    torch.float32: 7,
    torch.bfloat16: 9,
    torch.float8_e4m3fn: 0,  # as bytes
    torch.float8_e5m2: 0,
}
"""CUtensorMapDataType."""
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_MOST_SHARED_UNASKED = 48 * 1024
_MAX_DYNAMIC_SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


class Launch:
    """Launch one kernel on one GPU; everything but its tensors' addresses is fixed.

    `prepare` makes it, and threads may share it.
    """

    def __init__(self, call: KernelCall, device: int) -> None:
        self.call, self._device = call, device
        self._function = _function(call, device)
        self._handle = self._function.handle
        self._launch = driver().cuLaunchKernelEx
        self._readdress = driver().cuTensorMapReplaceAddress
        self._idle: list[_Slot] = []

    def __call__(self, *tensors: Tensor) -> None:
        """Launch the kernel on the current stream of its GPU.

        Args:
            tensors: the arguments that are pointers, in the kernel's order. Their dtypes and
                alignment must be those of the KernelCall, which is not checked.

        Raises:
            RuntimeError: if the driver refuses.
        """
        try:  # only one launch uses a slot at a time: the list's pop and append are atomic
            slot = self._idle.pop()
        except IndexError:
            slot = _Slot(self.call, self._function, tensors)
        addresses = slot.addresses
        for i, tensor in enumerate(tensors):
            addresses[i] = tensor.data_ptr()
        for n, (i, at) in enumerate(slot.maps):
            if (address := addresses[i]) != slot.mapped[n]:
                check(self._readdress(at, address), "moving a tensor map")
                slot.mapped[n] = address
        slot.config.stream = torch._C._cuda_getCurrentRawStream(self._device)
        if torch._C._cuda_getDevice() == self._device:
            status = self._launch(slot.config_at, self._handle, slot.parameters, None)
        else:
            status = self._elsewhere(slot)
        if status == _INVALID_CONTEXT:
            # in a new thread, the runtime's first call makes the GPU's context current
            torch.cuda.synchronize(self._device)
            status = self._launch(slot.config_at, self._handle, slot.parameters, None)
        self._idle.append(slot)
        if status:
            check(status, f"launching {self.call.kernel.__name__}")

    @property
    def per_processor(self) -> int:
        """Return how many programs of the kernel a multiprocessor runs at once."""
        count, function = ctypes.c_int(), self._function
        status = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(count), self._handle, function.threads, ctypes.c_size_t(function.shared)
        )
        check(status, f"asking how many of {self.call.kernel.__name__} run at once")
        return count.value

    def _elsewhere(self, slot: _Slot) -> int:
        with torch.cuda.device(self._device):
            return int(self._launch(slot.config_at, self._handle, slot.parameters, None))


def prepare(call: KernelCall, device: torch.device) -> Callable[..., None]:
    """Return a function that launches `call` on `device`, a GPU with an index; see Launch.

    The kernel is compiled and loaded unless that is done already. Kernels that were defined under
    TRITON_INTERPRET=1 are interpreted, on any device.

    Raises:
        RuntimeError: if the kernel needs more shared memory than the GPU has, or the driver
        refuses.
    """
    if isinstance(call.kernel, InterpretedFunction):
        return _interpret(call)
    return Launch(call, device.index)


def _interpret(call: KernelCall) -> Callable[..., None]:
    names = [
        name for name in call.kernel.arg_names if isinstance(call.arguments.get(name), Pointer)
    ]

    def launch(*tensors: Tensor) -> None:
        arguments = {**call.arguments, **dict(zip(names, tensors, strict=True)), **call.constants}
        call.kernel[call.programs](**{name: arguments[name] for name in call.kernel.arg_names})

    return launch


class _Config(ctypes.Structure):
    """Mirror CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """Mirror CUlaunchAttribute."""

    _fields_ = (("kind", ctypes.c_uint64), ("value", ctypes.c_int), ("unused", ctypes.c_uint8 * 60))


_EARLY = _Attribute(6, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Slot:
    """Hold the arguments of one launch; the driver copies them before the launch returns."""

    def __init__(self, call: KernelCall, function: _Function, tensors: Sequence[Tensor]) -> None:
        self.addresses = (ctypes.c_uint64 * len(tensors))()
        self.maps: list[tuple[int, int]] = []
        """The index of the tensor, and the address of its tensor map, of each TensorBox."""
        self.mapped: list[int] = []
        """The addresses in these maps."""
        self._kept: list[Any] = []
        places: list[int] = []
        pointers = iter(range(len(tensors)))
        for type_, value in list_given(call, function.source.signature):
            if isinstance(value, TensorBox):
                i = next(pointers)
                at = self._keep((ctypes.c_uint8 * (_MAP_BYTES + _MAP_ALIGNMENT))())
                self.maps.append((i, at + -at % _MAP_ALIGNMENT))
                _encode(
                    self.maps[-1][1],
                    tensors[i].data_ptr(),
                    value,
                    function.boxes[len(self.maps) - 1],
                )
                self.mapped.append(tensors[i].data_ptr())
                places.append(self.maps[-1][1])
                places += [self._keep(ctypes.c_int32(n)) for n in value.shape] + [
                    self._keep(ctypes.c_int64(n)) for n in value.strides
                ]
            elif type_[0] == "*":
                places.append(ctypes.addressof(self.addresses) + 8 * next(pointers))
            else:
                places.append(self._keep(_SCALARS[type_](value)))
        # Triton adds pointers to scratch memory and to a profiler's, which these kernels do not use
        places += [self._keep(ctypes.c_uint64(0))] * 2
        self.parameters = (ctypes.c_void_p * len(places))(*places)
        self.config = _Config(*call.programs, function.threads, 1, 1, function.shared)
        if call.options.get("launch_pdl"):
            self.config.attributes, self.config.attribute_count = ctypes.addressof(_EARLY), 1
        self.config_at = ctypes.byref(self.config)

    def _keep(self, value: Any) -> int:
        self._kept.append(value)
        return ctypes.addressof(value)


def _encode(at: int, address: int, box: TensorBox, by: Mapping[str, Any]) -> None:
    """Write the tensor map of a box as the compiled kernel expects it.

    Args:
        at: the address of the map.
        address: the address of the tensor.
        box: the tensor's description.
        by: Triton's description: the swizzle, and the part of a box that is moved at once.

    Source: CUDA driver API, cuTensorMapEncodeTiled. Dimensions begin with the innermost; strides
    are in bytes, without the innermost.
    """
    rank, size = len(box.shape), box.dtype.itemsize
    dims = (ctypes.c_uint64 * rank)(*reversed(box.shape))
    strides = (ctypes.c_uint64 * (rank - 1))(*(size * n for n in reversed(box.strides[:-1])))
    part = (ctypes.c_uint32 * rank)(*reversed(by["block_size"]))
    steps = (ctypes.c_uint32 * rank)(*[1] * rank)
    no_interleave, l2_128_bytes, zeros_outside = 0, 2, 0
    status = driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), _IN_MAPS[box.dtype], rank, ctypes.c_void_p(address), dims, strides,
        part, steps, no_interleave, by["swizzle"], l2_128_bytes, zeros_outside,
    )  # fmt: skip
    check(status, f"a tensor map of {box}")


_SCALARS: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


@dataclass(frozen=True)
class _Function:
    """Hold a kernel that is loaded on a GPU."""

    source: ASTSource
    handle: ctypes.c_void_p
    threads: int
    shared: int
    boxes: Sequence[Mapping[str, Any]]
    """Triton's descriptions of the boxes among the arguments, in their order."""


_FUNCTIONS: dict[object, _Function] = {}
_LOADING = threading.Lock()


def _function(call: KernelCall, device: int) -> _Function:
    requested = source(call)
    key = (requested.hash(), tuple(sorted(call.options.items())), device)
    with _LOADING:
        if key not in _FUNCTIONS:
            _FUNCTIONS[key] = _load(requested, call, device)
        return _FUNCTIONS[key]


def _load(requested: ASTSource, call: KernelCall, device: int) -> _Function:
    major, minor = torch.cuda.get_device_capability(device)
    kernel = compile_kernel(call, 10 * major + minor)
    metadata = kernel.metadata
    assert metadata.num_ctas == 1 and not metadata.global_scratch_size, (
        "neither clusters nor scratch memory are passed to the kernel"
    )
    library, module, handle = driver(), ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.synchronize(device)  # makes the GPU's context current
        check(
            library.cuModuleLoadData(ctypes.byref(module), kernel.kernel), f"loading {kernel.name}"
        )
        check(
            library.cuModuleGetFunction(ctypes.byref(handle), module, kernel.name.encode()),
            f"finding {kernel.name}",
        )
        if metadata.shared > _MOST_SHARED_UNASKED:
            status = library.cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED_SIZE, metadata.shared)
            check(status, f"{metadata.shared} bytes of shared memory for {kernel.name}")
    return _Function(
        requested,
        handle,
        32 * metadata.num_warps,
        metadata.shared,
        getattr(metadata, "tensordesc_meta", None) or (),
    )


@lru_cache(maxsize=1)
def driver() -> ctypes.CDLL:
    """Return the CUDA driver's library, which exists wherever a GPU is usable.

    Calls release the interpreter's lock.
    """
    found = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    found.cuTensorMapReplaceAddress.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return found


def check(status: int, what: str) -> None:
    """Raise RuntimeError, which says what failed and what the driver answers, unless it is 0."""
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(
            f"{what}: the CUDA driver answers"
            f" {(text.value or b'an unknown error').decode()} ({status})"
        )
