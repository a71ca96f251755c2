"""Exchange between the GPUs of one host by copies into each other's memory.

The copy engine moves rows from where they are to where a kernel reads them, beside the kernel and
without a multiprocessor. Each rank has an arena of symmetric memory with a few slots, which rounds
use in turn. Two numbers in the receiver's memory say, for each sender and slot, which round has
arrived; two in the sender's, which round's slot is free again. Streams wait for them; no kernel
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import Tensor

from gpudeck.accel.distributed.driver import Copy, await_number, fits, write_number
from gpudeck.accel.distributed.exchange import ALIGNMENT, Part, Round, Send, bytes_of, padded
from gpudeck.accel.distributed.watch import Watch

_NUMBER = 4


@dataclass
class _Arena:
    """The memory that all ranks can write."""

    memory: Tensor
    addresses: list[int]
    slot_bytes: int
    programs: dict[object, _Program] = field(default_factory=dict)


@dataclass
class _Program:
    """The copies of one round into one slot."""

    buffers: list[Tensor]
    sends: list[tuple[int, list[Copy]]]
    """For each peer."""
    own: list[tuple[Part, Tensor]]
    senders: list[int]


@dataclass
class _Slot:
    """What is known of one slot."""

    used: bool = False
    """True until its content is released."""
    filled: torch.cuda.Event | None = None
    """When this rank's own rows are there."""
    released: torch.cuda.Event | None = None
    """When its last content is not needed any more."""
    sent_to: dict[int, int] = field(default_factory=dict)
    """The last round that was sent to this slot of a peer."""


class Direct:
    """Copies between GPUs that see each other's memory."""

    name = "copies by the copy engine"

    def __init__(
        self, group: dist.ProcessGroup, control: dist.ProcessGroup, device: torch.device, slots: int
    ) -> None:
        self._group, self._control, self._device = group, control, device
        self._me, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        self._slots = [_Slot() for _ in range(slots)]
        self._header = padded(2 * self._ranks * slots * _NUMBER)
        self._arena: _Arena | None = None
        self._round = 0
        self._streams = {p: _stream(device) for p in range(self._ranks) if p != self._me}
        self._own, self._signals = _stream(device), _stream(device)
        self._begun: torch.cuda.Event | None = None
        self._watch = Watch()

    def reserve(self, size: int) -> None:
        """Make an arena whose slots hold so many bytes, unless there is one."""
        if self._arena is not None and self._arena.slot_bytes >= size:
            return
        torch.cuda.synchronize(self._device)
        dist.barrier(self._control)
        self._arena = None
        self._slots = [_Slot() for _ in self._slots]
        slot_bytes = padded(max(size, ALIGNMENT))
        whole = self._header + slot_bytes * len(self._slots)
        memory = symmetric.empty(whole, dtype=torch.uint8, device=self._device)
        handle = symmetric.rendezvous(memory, self._group)
        memory.zero_()
        torch.cuda.synchronize(self._device)
        dist.barrier(self._control)
        self._arena = _Arena(memory, [int(p) for p in handle.buffer_ptrs], slot_bytes)

    def begin(self, round_: Round, tensors: Sequence[Tensor]) -> _Landing:
        """Queue the copies of a round to all peers, and those of this rank's own rows."""
        arena = self._arena
        assert arena is not None and round_.size <= arena.slot_bytes, "no room is reserved"
        number = self._round = self._round + 1
        at = number % len(self._slots)
        slot = self._slots[at]
        assert not slot.used, "a round begins before its slot is released"
        slot.used = True
        current = torch.cuda.current_stream(self._device)
        given = [t if fits(t) else t.contiguous() for t in tensors]
        copied = any(a is not b for a, b in zip(given, tensors, strict=True))
        ready = self._ready(current, round_.fresh or copied)
        program = self._program(arena, round_, at, tuple(t.stride() for t in given))
        for peer, copies in program.sends:
            self._send(peer, copies, given, at, number, ready)
        self._fill(program, given, slot, ready)
        return _Landing(self, program.buffers, program.senders, at, number)

    def end(self) -> None:
        """Let the current stream wait for all copies that read this rank's memory."""
        current = torch.cuda.current_stream(self._device)
        for stream in (*self._streams.values(), self._own):
            current.wait_stream(stream)
        self._begun = None

    def arrived(self, senders: list[int], at: int, number: int) -> None:
        """Let the current stream wait for the rows of a round."""
        assert self._arena is not None
        current = torch.cuda.current_stream(self._device)
        filled = self._slots[at].filled
        if filled is not None:
            current.wait_event(filled)
        reached = current.record_event()
        for sender in senders:
            address = self._address(self._me, "arrived", sender, at)
            await_number(address, number, current.cuda_stream)
        self._watch.add(reached, current.record_event(), senders)

    def released(self, senders: list[int], at: int, number: int) -> None:
        """Tell the senders of a round that its slot is free, after what is queued now."""
        event = torch.cuda.current_stream(self._device).record_event()
        self._slots[at].released, self._slots[at].used = event, False
        self._signals.wait_event(event)
        for sender in senders:
            address = self._address(sender, "free", self._me, at)
            write_number(address, number, self._signals.cuda_stream)

    def _ready(self, current: torch.cuda.Stream, fresh: bool) -> torch.cuda.Event:
        if self._begun is None:
            self._begun = current.record_event()
        return current.record_event() if fresh else self._begun

    def _send(
        self,
        peer: int,
        copies: list[Copy],
        given: list[Tensor],
        at: int,
        number: int,
        ready: torch.cuda.Event,
    ) -> None:
        stream, slot = self._streams[peer], self._slots[at]
        raw = stream.cuda_stream
        stream.wait_event(ready)
        if before := slot.sent_to.get(peer):
            await_number(self._address(self._me, "free", peer, at), before, raw)
        slot.sent_to[peer] = number
        for copy in copies:
            copy.run(given[copy.tensor].data_ptr(), raw)
        for tensor in {copy.tensor for copy in copies}:
            given[tensor].record_stream(stream)  # it may be freed before the copy is done
        write_number(self._address(peer, "arrived", self._me, at), number, raw)

    def _fill(
        self, program: _Program, given: list[Tensor], slot: _Slot, ready: torch.cuda.Event
    ) -> None:
        """Put this rank's own rows into its landing buffers.

        Copies within a GPU take multiprocessors, a few of them as soon as a kernel leaves them.
        """
        slot.filled = None
        if not program.own:
            return
        self._own.wait_event(ready)
        if slot.released is not None:
            self._own.wait_event(slot.released)
        with torch.cuda.stream(self._own):
            for part, target in program.own:
                target.copy_(part.of(given))
        for tensor in {part.tensor for part, _ in program.own}:
            given[tensor].record_stream(self._own)
        slot.filled = self._own.record_event()

    def _program(
        self, arena: _Arena, round_: Round, at: int, strides: tuple[tuple[int, ...], ...]
    ) -> _Program:
        """Return the copies of a round into a slot, which are prepared once for tensors of some
        strides."""
        key = (round_, at, strides)
        if (program := arena.programs.get(key)) is None:
            buffers = self._buffers(arena, at, round_)
            own = [
                (part, place.of(buffers, (part.rows.stop - part.rows.start) // part.step))
                for part, place in round_.own
            ]
            sends: dict[int, list[Copy]] = {}
            for send in round_.sends:
                copy = self._copy(arena, send, at, strides[send.part.tensor])
                sends.setdefault(send.peer, []).append(copy)
            senders = sorted({part.peer for part in round_.receives})
            program = _Program(buffers, sorted(sends.items()), own, senders)
            arena.programs[key] = program
        return program

    def _copy(self, arena: _Arena, send: Send, at: int, strides: tuple[int, ...]) -> Copy:
        part, (buffer, row, _) = send.part, send.place
        (batches, heads, rows, dim), dtype = send.there[buffer]
        target = arena.addresses[send.peer] + self._header + at * arena.slot_bytes
        target += bytes_of(*send.there[:buffer]) + row * dim * dtype.itemsize
        begin = part.heads.start * strides[1] + part.rows.start * strides[2]
        count = part.rows.stop - part.rows.start
        return Copy(
            part.tensor, begin * dtype.itemsize, strides[0] * dtype.itemsize,
            strides[1] * dtype.itemsize, target, rows * dim * dtype.itemsize, batches, heads,
            count * dim * dtype.itemsize,
        )  # fmt: skip

    def _buffers(self, arena: _Arena, at: int, round_: Round) -> list[Tensor]:
        begin = self._header + at * arena.slot_bytes
        buffers = []
        for shape, dtype in round_.buffers:
            size = prod(shape) * dtype.itemsize
            buffers.append(arena.memory[begin : begin + size].view(dtype).view(shape))
            begin += bytes_of((shape, dtype))
        return buffers

    def _address(self, rank: int, what: str, peer: int, slot: int) -> int:
        """Return where a rank keeps the number of what a peer has done with a slot."""
        assert self._arena is not None
        index = ((what == "free") * self._ranks + peer) * len(self._slots) + slot
        return self._arena.addresses[rank] + _NUMBER * index


def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream whose copies come before kernels that wait, too."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


class _Landing:
    def __init__(
        self, exchange: Direct, buffers: list[Tensor], senders: list[int], at: int, number: int
    ) -> None:
        self.buffers = buffers
        self._exchange = exchange
        self._round = senders, at, number

    def arrive(self) -> None:
        """Let the current stream wait until everything is there."""
        self._exchange.arrived(*self._round)

    def release(self) -> None:
        """Free the slot after what is queued on the current stream."""
        self._exchange.released(*self._round)
