"""Call the functions of NVIDIA's driver that suspend a process, by ctypes and without torch.

Source: CUDA driver API, "Checkpointing" (cuCheckpointProcess*), driver 570 and later; and "Virtual
Memory Management", whose allocations need no context on the GPU.
"""

from __future__ import annotations

import ctypes
import uuid
from pathlib import Path

from gpudeck.scheduler.suspension.calls import STATES, Call, Capability, Room, State

_LIBRARY = "libcuda.so.1"
_PTRACE = Path("/proc/sys/kernel/yama/ptrace_scope")
_FORBIDDEN = "23"
"""The values of ptrace_scope with which only an administrator may touch a process."""
_INVALID_DEVICE = 101
_PINNED, _ON_DEVICE = 1, 1
"""CU_MEM_ALLOCATION_TYPE_PINNED and CU_MEM_LOCATION_TYPE_DEVICE."""
_MINIMUM = 0
"""CU_MEM_ALLOC_GRANULARITY_MINIMUM."""


class _LockArguments(ctypes.Structure):
    """CUcheckpointLockArgs, 64 bytes."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationFlags(ctypes.Structure):
    """The last member of CUmemAllocationProp."""

    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    )


class Driver:
    """Hold the driver's library, and the room that is held for a restore."""

    def __init__(self) -> None:
        self._held: dict[int, list[ctypes.c_ulonglong]] = {}
        self._rooms: dict[int, tuple[Room, ...]] = {}
        """What is held for each process, as it was asked for."""
        self._library: ctypes.CDLL | None = None
        self.capability = self._load()

    def _load(self) -> Capability:
        try:
            self._library = library = ctypes.CDLL(_LIBRARY)
        except OSError as e:
            return Capability(0, "no driver", str(e))
        version = ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(version))
        if not hasattr(library, "cuCheckpointProcessLock"):
            return Capability(version.value, "old driver")
        if code := library.cuInit(0):
            return Capability(version.value, "not initialized", self.name(code))
        scope = _PTRACE.read_text().strip() if _PTRACE.exists() else "0"
        if scope in _FORBIDDEN:
            return Capability(version.value, "ptrace", scope)
        return Capability(version.value)

    def name(self, code: int) -> str:
        """Return the driver's name of a result."""
        text = ctypes.c_char_p()
        assert self._library is not None
        if self._library.cuGetErrorName(code, ctypes.byref(text)) or text.value is None:
            return f"result {code}"
        return text.value.decode()

    def call(self, call: Call, pid: int, limit_ms: int) -> tuple[int, State | None]:
        """Make one call; return the driver's result, and the state that `state` asks for.

        Args:
            pid: The process.
            limit_ms: How long a lock waits for kernels that are under way.
        """
        assert self._library is not None
        if call == "state":
            found = ctypes.c_int()
            code = self._library.cuCheckpointProcessGetState(pid, ctypes.byref(found))
            return code, None if code else STATES[found.value]
        function = getattr(self._library, f"cuCheckpointProcess{call.capitalize()}")
        arguments = ctypes.byref(_LockArguments(limit_ms)) if call == "lock" else None
        return int(function(pid, arguments)), None

    def hold(self, pid: int, rooms: tuple[Room, ...]) -> int:
        """Allocate memory for a process's restore, without a context; return the driver's result.

        It replaces what was held for the process; the same is kept, as 40 GiB take 0.1 s.
        """
        if rooms and self._rooms.get(pid) == rooms:
            return 0
        self.release(pid)
        for room in rooms:
            if code := self._allocate(pid, room):
                self.release(pid)
                return code
        self._rooms[pid] = rooms
        return 0

    def release(self, pid: int) -> None:
        """Free the room that is held for a process."""
        self._rooms.pop(pid, None)
        for handle in self._held.pop(pid, ()):
            assert self._library is not None
            self._library.cuMemRelease(handle)

    def _allocate(self, pid: int, room: Room) -> int:
        assert self._library is not None
        if (device := self._find_device(room.gpu)) is None:
            return _INVALID_DEVICE
        wanted = _AllocationProperties(_PINNED, 0, _Location(_ON_DEVICE, device))
        size, handle = ctypes.c_size_t(), ctypes.c_ulonglong()
        step = ctypes.byref(size), ctypes.byref(wanted), _MINIMUM
        if code := self._library.cuMemGetAllocationGranularity(*step):
            return int(code)
        whole = -(-room.memory // size.value) * size.value
        code = self._library.cuMemCreate(
            ctypes.byref(handle), ctypes.c_size_t(whole), ctypes.byref(wanted), ctypes.c_ulonglong()
        )
        if not code:
            self._held.setdefault(pid, []).append(handle)
        return int(code)

    def _find_device(self, gpu: str) -> int | None:
        """Return the driver's number of a GPU, which may order them otherwise than NVML."""
        assert self._library is not None
        count, device, found = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self._library.cuDeviceGetCount(ctypes.byref(count))
        for number in range(count.value):
            self._library.cuDeviceGet(ctypes.byref(device), number)
            self._library.cuDeviceGetUuid_v2(ctypes.byref(found), device)
            if f"GPU-{uuid.UUID(bytes=bytes(found))}" == gpu:
                return device.value
        return None
