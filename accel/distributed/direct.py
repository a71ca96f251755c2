"""Exchange between the GPUs of one host by copies into each other's memory.

The copy engine moves rows from where they are to where a kernel reads them, beside the kernel and
without a multiprocessor. Each rank has an arena of symmetric memory with a few slots, which rounds
use in turn. Two numbers in the receiver's memory say, for each sender and slot, which round has
arrived; two in the sender's, which round's slot is free again. Streams wait for them; no kernel
does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from operator import attrgetter

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import Tensor

from gpudeck.accel.distributed.driver import await_number, copy_rows, fits, write_number
from gpudeck.accel.distributed.exchange import ALIGNMENT, Round, Send, bytes_of, padded
from gpudeck.accel.distributed.watch import Watch

_NUMBER = 4


@dataclass
class _Arena:
    """The memory that all ranks can write."""

    memory: Tensor
    addresses: list[int]
    slot_bytes: int


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
        self._streams = {
            peer: torch.cuda.Stream(device, -1) for peer in range(self._ranks) if peer != self._me
        }
        self._own, self._signals = torch.cuda.Stream(device), torch.cuda.Stream(device, -1)
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

    def begin(self, round_: Round) -> _Landing:
        """Queue the copies of a round to all peers, and those of this rank's own rows."""
        arena = self._arena
        assert arena is not None and round_.bytes_of_any <= arena.slot_bytes, "no room reserved"
        number = self._round = self._round + 1
        at = number % len(self._slots)
        slot = self._slots[at]
        assert not slot.used, "a round begins before its slot is released"
        slot.used = True
        current = torch.cuda.current_stream(self._device)
        sends = [send._replace(source=_fitting(send.source)) for send in round_.sends]
        copied = any(a.source is not b.source for a, b in zip(sends, round_.sends, strict=True))
        ready = self._ready(current, round_.fresh or copied)
        buffers = self._buffers(arena, at, round_)
        by_peer = attrgetter("peer")
        for peer, parts in groupby(sorted(sends, key=by_peer), by_peer):
            self._send(arena, peer, list(parts), at, number, ready)
        self._fill(round_, buffers, slot, ready)
        senders = sorted({part.peer for part in round_.receives})
        return _Landing(self, buffers, senders, at, number)

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
        arena: _Arena,
        peer: int,
        sends: list[Send],
        at: int,
        number: int,
        ready: torch.cuda.Event,
    ) -> None:
        stream, slot = self._streams[peer], self._slots[at]
        stream.wait_event(ready)
        if before := slot.sent_to.get(peer):
            await_number(self._address(self._me, "free", peer, at), before, stream.cuda_stream)
        slot.sent_to[peer] = number
        base = arena.addresses[peer] + self._header + at * arena.slot_bytes
        for send in sends:
            (_, _, rows, dim), dtype = send.there[send.buffer]
            offset = sum(bytes_of(*before) for before in send.there[: send.buffer])
            target = base + offset + send.row * dim * dtype.itemsize
            copy_rows(send.source, target, rows * dim * dtype.itemsize, stream.cuda_stream)
            send.source.record_stream(stream)  # it may be freed before the copy is done
        write_number(self._address(peer, "arrived", self._me, at), number, stream.cuda_stream)

    def _fill(
        self, round_: Round, buffers: list[Tensor], slot: _Slot, ready: torch.cuda.Event
    ) -> None:
        """Put this rank's own rows into its landing buffers."""
        slot.filled = None
        if not round_.own:
            return
        self._own.wait_event(ready)
        if slot.released is not None:
            self._own.wait_event(slot.released)
        for mine in round_.own:
            buffer, source = buffers[mine.buffer], _fitting(mine.source)
            head_bytes = buffer.stride(1) * buffer.element_size()
            target = buffer.data_ptr() + mine.row * buffer.stride(2) * buffer.element_size()
            copy_rows(source, target, head_bytes, self._own.cuda_stream)
            source.record_stream(self._own)
        slot.filled = self._own.record_event()

    def _buffers(self, arena: _Arena, at: int, round_: Round) -> list[Tensor]:
        begin = self._header + at * arena.slot_bytes
        buffers = []
        for shape, dtype in round_.shapes:
            size = prod(shape) * dtype.itemsize
            buffers.append(arena.memory[begin : begin + size].view(dtype).view(shape))
            begin += bytes_of(shape, dtype)
        return buffers

    def _address(self, rank: int, what: str, peer: int, slot: int) -> int:
        """Return where a rank keeps the number of what a peer has done with a slot."""
        assert self._arena is not None
        index = ((what == "free") * self._ranks + peer) * len(self._slots) + slot
        return self._arena.addresses[rank] + _NUMBER * index


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


def _fitting(t: Tensor) -> Tensor:
    return t if fits(t) else t.contiguous()
