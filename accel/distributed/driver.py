"""Queue copies and waits that need no multiprocessor, through the CUDA driver."""

from __future__ import annotations

import ctypes
from functools import cache

from torch import Tensor

_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: the driver sees from an address whose memory it is


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("src_x", ctypes.c_size_t),
        ("src_y", ctypes.c_size_t),
        ("src_kind", ctypes.c_uint),
        ("src_host", ctypes.c_void_p),
        ("src", ctypes.c_uint64),
        ("src_array", ctypes.c_void_p),
        ("src_pitch", ctypes.c_size_t),
        ("dst_x", ctypes.c_size_t),
        ("dst_y", ctypes.c_size_t),
        ("dst_kind", ctypes.c_uint),
        ("dst_host", ctypes.c_void_p),
        ("dst", ctypes.c_uint64),
        ("dst_array", ctypes.c_void_p),
        ("dst_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def fits(t: Tensor) -> bool:
    """Return True if the rows of each head of [B,H,n,D] lie end to end, so that the copy engine
    takes whole heads at once."""
    return t.stride(3) == 1 and (t.shape[2] <= 1 or t.stride(2) == t.shape[3])


class Copy:
    """Copy heads of a tensor [B,H,n,D] to an address, prepared for tensors of some strides.

    All sizes and distances are in bytes.
    """

    def __init__(
        self,
        tensor: int,
        begin: int,
        batch: int,
        head: int,
        target: int,
        target_head: int,
        batches: int,
        heads: int,
        width: int,
    ) -> None:
        """Prepare the copy.

        Args:
            tensor: the number of the tensor, which the caller knows.
            begin: of the first row from the tensor's address on.
            batch: the distance of batches in the tensor.
            head: the distance of heads.
            target: where to copy.
            target_head: the distance of heads there; batches follow each other.
            batches: their number.
            heads: their number in each batch.
            width: the bytes of each head.
        """
        self.tensor = tensor
        self._width = _size(width)
        self._rows = heads
        self._batches = [
            (begin + b * batch, self._struct(head, target + b * heads * target_head, target_head))
            for b in range(batches)
        ]

    def _struct(self, pitch: int, target: int, target_pitch: int) -> _Copy2D:
        return _Copy2D(
            0, 0, _UNIFIED, None, 0, None, pitch, 0, 0, _UNIFIED, None, target, None, target_pitch,
            self._width.value, self._rows,
        )  # fmt: skip

    def run(self, source: int, stream: int) -> None:
        """Queue the copy from the tensor at an address.

        Raises:
            RuntimeError: if the driver refuses.
        """
        for begin, copy in self._batches:
            if self._rows == 1:
                _call(
                    "cuMemcpyDtoDAsync_v2", _long(copy.dst), _long(source + begin), self._width,
                    _pointer(stream),
                )  # fmt: skip
            else:
                copy.src = source + begin  # the driver reads the structure before it returns
                _call("cuMemcpy2DAsync_v2", ctypes.byref(copy), _pointer(stream))


class _MemoryOperation(ctypes.Structure):
    """CUstreamBatchMemOpParams of a wait for a value, or of a write."""

    _fields_ = (
        ("operation", ctypes.c_uint),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("unused", ctypes.c_uint64),
    )


_WAIT, _WRITE = 1, 2  # CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32


def raise_flag(address: int, stream: int) -> None:
    """Let the stream write 1 into 4 bytes when all that was queued before is done and visible."""
    _call("cuStreamWriteValue32_v2", _pointer(stream), _long(address), ctypes.c_uint32(1), 0)


def take_flag(address: int, stream: int) -> None:
    """Let the stream wait until the 4 bytes hold 1, and write 0 there."""
    both = (_MemoryOperation * 2)(
        _MemoryOperation(_WAIT, address, 1), _MemoryOperation(_WRITE, address, 0)
    )
    _call("cuStreamBatchMemOp_v2", _pointer(stream), ctypes.c_uint(2), both, ctypes.c_uint(0))


_long, _size, _pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        raise RuntimeError(f"the CUDA driver refuses {name}: error {status}")
