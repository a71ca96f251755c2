"""Read the calls that XLA makes to a function outside its program, without a compiled extension.

The structures are those of XLA's stable C interface for foreign functions, of which every member
that is read here has kept its place since version 0.1. XLA asks a function once for the version of
the interface that it knows, and it gets the version that XLA itself has.

Source: xla/ffi/api/c_api.h, which jaxlib brings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, NamedTuple

_METADATA = 1
_INVALID_ARGUMENT = 3
_STRING = 4


class _Version(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _Extension(Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p),
                ("metadata", POINTER(_Metadata))]  # fmt: skip


class _Buffer(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p),
                ("rank", c_int64), ("dims", POINTER(c_int64))]  # fmt: skip


class _Values(Structure):
    """Arguments or results."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("count", c_int64),
                ("types", POINTER(c_int)), ("values", POINTER(POINTER(_Buffer)))]  # fmt: skip


class _Span(Structure):
    _fields_ = [("start", c_void_p), ("length", c_size_t)]


class _Attributes(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("count", c_int64),
                ("types", POINTER(c_int)), ("names", POINTER(POINTER(_Span))),
                ("values", POINTER(POINTER(_Span)))]  # fmt: skip


class _NewError(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("message", ctypes.c_char_p),
                ("code", c_int)]  # fmt: skip


class _AskedStream(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("context", c_void_p),
                ("stream", c_void_p)]  # fmt: skip


class _Interface(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("version", _Version), ("internal", c_void_p),
        ("new_error", CFUNCTYPE(c_void_p, POINTER(_NewError))),
        ("message_of_error", c_void_p), ("destroy_error", c_void_p), ("register", c_void_p),
        ("stream", CFUNCTYPE(c_void_p, POINTER(_AskedStream))),
    ]  # fmt: skip


class _Frame(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", POINTER(_Extension)), ("interface", POINTER(_Interface)),
        ("context", c_void_p), ("stage", c_int), ("arguments", _Values), ("results", _Values),
        ("attributes", _Attributes),
    ]  # fmt: skip


Handler = CFUNCTYPE(c_void_p, POINTER(_Frame))


class Buffer(NamedTuple):
    """Describe memory of XLA's: its address, its shape, and XLA's number of its dtype."""

    address: int
    shape: tuple[int, ...]
    dtype: int


class Call(NamedTuple):
    """Hold what XLA passes to a function; the buffers are valid until it returns."""

    arguments: Sequence[Buffer]
    results: Sequence[Buffer]
    texts: dict[str, str]
    """The attributes that are texts."""
    stream: int | None
    """The CUDA stream to launch kernels on; None on a CPU."""


def handler(run: Callable[[Call], None], *, cuda: bool) -> Any:
    """Return a C function that XLA can call; the caller keeps it for as long as XLA may call it.

    What `run` raises becomes an error of the program that XLA runs.
    """

    def called(pointer: Any) -> int | None:
        frame = pointer.contents
        interface = frame.interface.contents
        if frame.extension and frame.extension.contents.type == _METADATA:
            frame.extension.contents.metadata.contents.version = interface.version
            return None
        try:
            run(_call(frame, interface, cuda))
        except Exception as e:  # noqa: BLE001 - it is raised again on the other side, by XLA
            text = f"{type(e).__name__}: {e}".encode()
            error = _NewError(ctypes.sizeof(_NewError), None, text, _INVALID_ARGUMENT)
            made: int | None = interface.new_error(ctypes.byref(error))
            return made
        return None

    return Handler(called)


def _call(frame: Any, interface: Any, cuda: bool) -> Call:
    stream = None
    if cuda:
        asked = _AskedStream(ctypes.sizeof(_AskedStream), None, frame.context, None)
        if interface.stream(ctypes.byref(asked)):
            raise RuntimeError("XLA has no CUDA stream for this call")
        stream = asked.stream or 0
    return Call(
        _buffers(frame.arguments), _buffers(frame.results), _texts(frame.attributes), stream
    )


def _buffers(values: Any) -> list[Buffer]:
    listed = (values.values[n].contents for n in range(values.count))
    return [Buffer(b.data or 0, tuple(b.dims[: b.rank]), b.dtype) for b in listed]


def _texts(attributes: Any) -> dict[str, str]:
    return {
        _text(attributes.names[n]): _text(attributes.values[n])
        for n in range(attributes.count)
        if attributes.types[n] == _STRING
    }


def _text(span: Any) -> str:
    return ctypes.string_at(span.contents.start, span.contents.length).decode()
