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


def copy_rows(source: Tensor, target: int, head_bytes: int, stream: int) -> None:
    """Copy [B,H,n,D] to an address, where heads begin every `head_bytes` and batches follow.

    Raises:
        RuntimeError: if the driver refuses.
    """
    batches, heads, rows, dim = source.shape
    size = source.element_size()
    width = rows * dim * size
    for b in range(batches):
        begin = source.data_ptr() + b * source.stride(0) * size
        place = target + b * heads * head_bytes
        if heads == 1:
            _call(
                "cuMemcpyDtoDAsync_v2", _long(place), _long(begin), _size(width), _pointer(stream)
            )
            continue
        pitch = source.stride(1) * size
        copy = _Copy2D(
            0, 0, _UNIFIED, None, begin, None, pitch, 0, 0, _UNIFIED, None, place, None, head_bytes,
            width, heads,
        )  # fmt: skip
        _call("cuMemcpy2DAsync_v2", ctypes.byref(copy), _pointer(stream))


def write_number(address: int, number: int, stream: int) -> None:
    """Let the stream write 4 bytes when all that was queued before is done and visible."""
    _call("cuStreamWriteValue32_v2", _pointer(stream), _long(address), ctypes.c_uint32(number), 0)


def await_number(address: int, number: int, stream: int) -> None:
    """Let the stream wait until the 4 bytes hold at least this number."""
    _call("cuStreamWaitValue32_v2", _pointer(stream), _long(address), ctypes.c_uint32(number), 0)


_long, _size, _pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        raise RuntimeError(f"the CUDA driver refuses {name}: error {status}")
