"""What the judge and a process that runs a candidate say to each other: MessagePack, with lengths.

Nothing that a candidate's process says is executed or unpickled.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from gpudeck.accel.search.code import Code
from gpudeck.accel.search.resources import Resources
from gpudeck.accel.search.verdict import Kind, Source

_LENGTH = struct.Struct("!I")
_MOST = 1 << 20
"""The longest message, in bytes."""


class Hung(Exception):
    """Signal that a process did not answer in time."""


class Ended(Exception):
    """Signal that a process ended before it answered, or answered what is no reply."""


class Region(msgspec.Struct, frozen=True):
    """Describe a tensor in the shared memory."""

    offset: int
    """Bytes."""
    shape: tuple[int, ...]
    dtype: str


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load a function, and set up the process."""

    source: Source
    device: str
    threads: int
    trusted: bool
    """Whether it is ours: then nothing is watched."""
    memory: int
    """The bytes of the shared memory."""
    handle: bytes = b""
    """What makes a GPU's memory shared; nothing on a CPU, where a descriptor is inherited."""


class Bind(msgspec.Struct, frozen=True, tag=True):
    """Lay out the shared memory: inputs at fixed places, and fresh values and results by call."""

    inputs: tuple[Region, ...]
    fresh: tuple[tuple[Region, ...], ...]
    results: tuple[Region, ...]


class Window(msgspec.Struct, frozen=True, tag=True):
    """Call the function `calls` times, with fresh inputs in each call."""

    calls: int
    warm: bool = False
    """Whether this is the first call with these shapes, which may compile."""
    late: bool = False
    """Whether results are copied only after the last call."""
    poison: bool = False
    """Whether memory that is allocated holds garbage."""
    repeats: int = 1
    """How often each call is made; the last result counts. The judge makes each once. Calls that
    were captured are replayed as they are."""


class Capture(msgspec.Struct, frozen=True, tag=True):
    """Put `repeats` calls into a CUDA graph, which the windows until the next `Bind` replay.

    So the time of a window is that of the GPU: a processor prepares a call for longer than some
    kernels take. Only the search does this, with kernels of ours.
    """

    repeats: int


class Listing(msgspec.Struct, frozen=True, tag=True):
    """Call the function once, and list what it launches."""


class Compile(msgspec.Struct, frozen=True, tag=True):
    """Compile the `KernelCall` that a function returns, without a GPU."""

    source: Source
    capability: int


class Show(msgspec.Struct, frozen=True, tag=True):
    """Show the code of the launches that a function returns, without a GPU."""

    source: Source
    capability: int


Request = Load | Bind | Window | Capture | Listing | Compile | Show


class Flag(msgspec.Struct, frozen=True):
    """Tell what the process noticed itself."""

    kind: Kind
    where: str


class Reply(msgspec.Struct, frozen=True):
    """Answer a request."""

    flags: tuple[Flag, ...] = ()
    launched: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    """Those of `launched` by which a library computes."""
    resources: Resources | None = None
    code: tuple[Code, ...] = ()


def write_frame(channel: socket.socket, message: object) -> None:
    """Send a message.

    Raises:
        OSError: if the other side has gone.
    """
    data = msgspec.msgpack.encode(message)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def read_frame(channel: socket.socket) -> bytes:
    """Return the next message, encoded.

    Raises:
        ConnectionError: if the other side has gone, or sends too much.
        TimeoutError: if nothing comes in time.
    """
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    if length > _MOST:
        raise ConnectionError(f"a message of {length} bytes")
    return _exactly(channel, length)


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = channel.recv(left)
        if not part:
            raise ConnectionError("the other side has gone")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
