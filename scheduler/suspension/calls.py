"""What the daemon asks of the helper, and what the helper answers: JSON, one message a line."""

from __future__ import annotations

from typing import Literal

import msgspec

Call = Literal["state", "lock", "checkpoint", "restore", "unlock"]
State = Literal["running", "locked", "checkpointed", "failed"]
STATES: tuple[State, ...] = ("running", "locked", "checkpointed", "failed")
"""The states of a process, by the driver's numbers."""


class Room(msgspec.Struct, frozen=True):
    """Name memory of a GPU, in bytes."""

    gpu: str
    """The UUID of the GPU."""
    memory: int


class DriverCall(msgspec.Struct, frozen=True, tag="call"):
    """Ask for one call to the driver."""

    id: int
    call: Call
    pid: int
    limit_ms: int = 0
    """How long a lock waits for kernels that are under way."""
    release: bool = False
    """Release the room that is held for the process, immediately before the call."""


class HoldRoom(msgspec.Struct, frozen=True, tag="hold"):
    """Ask the helper to allocate memory, so that no other program takes it before a restore.

    It replaces what is held for the process.
    """

    id: int
    pid: int
    rooms: tuple[Room, ...]


class Capability(msgspec.Struct, frozen=True, tag="capability"):
    """Say first whether programs can be suspended on this machine."""

    driver: int
    """The CUDA version of the driver, such as 13000; 0 where there is no driver."""
    problem: Literal["", "no driver", "old driver", "not initialized", "ptrace"] = ""
    """Why nothing can be suspended."""
    detail: str = ""
    """What the system said."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Answer a DriverCall or HoldRoom."""

    id: int
    code: int
    """The driver's result; 0 is success."""
    name: str = ""
    """The driver's name of the result, such as CUDA_ERROR_NOT_READY."""
    state: State | None = None
    seconds: float = 0.0
    """How long the driver took."""
    gap: float = 0.0
    """Between the release of the room and the call, in seconds: only then another program could
    take it."""


Command = DriverCall | HoldRoom
Answer = Capability | Done
