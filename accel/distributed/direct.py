"""Exchange between the GPUs of one host by copies into each other's memory.

The copy engine moves rows from where they are to where a kernel reads them, beside the kernel and
without a multiprocessor. Each rank has an arena of symmetric memory with a few slots for rounds
that bring something, which use them in turn, and a few smaller ones for rounds that take results
back. The two kinds go side by side, as what comes next must not wait for results. A flag in the
receiver's memory says, for each sender and slot, that its rows have arrived; one in the sender's,
that the slot is free again. Streams wait for flags and take them down; no kernel does. As the flags
count nothing, a pass can be replayed as a CUDA graph, and a peer need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import Tensor

from gpudeck.accel.distributed.driver import Copy, fits, raise_flag, take_flag
from gpudeck.accel.distributed.exchange import ALIGNMENT, Part, Round, Send, bytes_of, padded
from gpudeck.accel.distributed.watch import Watch

_FLAG = 4
THERE, BACK = 3, 2
"""The most rounds of each kind that may be under way at a time."""
SHORT_BYTES = 64 << 20
"""Of longer rounds that bring something, one fewer may be under way: they take long enough to hide
the next one, and memory."""


@dataclass
class _Arena:
    """The memory that all ranks can write."""

    memory: Tensor
    addresses: list[int]
    programs: dict[object, _Program] = field(default_factory=dict)


@dataclass
class _Program:
    """The copies of one round into one slot."""

    buffers: list[Tensor]
    sends: dict[int, list[Copy]]
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
    """When its last content in this pass is not needed any more."""


@dataclass
class _Line:
    """The rounds of one kind, which use slots of one size in turn."""

    slots: list[_Slot]
    first: int
    """The number of its first slot."""
    streams: dict[int, torch.cuda.Stream]
    """For the copies to each peer."""
    slot_bytes: int = 0
    start: int = 0
    """Where its slots begin in the arena."""
    rounds: int = 0

    @property
    def turn(self) -> int:
        """Return which slot comes next."""
        return self.rounds % len(self.slots)

    def place(self, slot: int) -> int:
        """Return where a slot begins in the arena."""
        return self.start + slot * self.slot_bytes


class Direct:
    """Copies between GPUs that see each other's memory."""

    name = "copies by the copy engine"

    def __init__(
        self, group: dist.ProcessGroup, control: dist.ProcessGroup, device: torch.device
    ) -> None:
        self._group, self._control, self._device = group, control, device
        self._me, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        self._peers = [p for p in range(self._ranks) if p != self._me]
        self._lines = [
            _Line([_Slot() for _ in range(count)], first, {p: _stream(device) for p in self._peers})
            for first, count in ((0, THERE), (THERE, BACK))
        ]
        self._arena: _Arena | None = None
        self._arenas = 0
        self._own, self._signals = _stream(device), _stream(device)
        self._busy: dict[torch.cuda.Stream, None] = {}
        """The streams that this pass has used."""
        self._home: torch.cuda.Stream | None = None
        """The stream of the last pass."""
        self._begun: torch.cuda.Event | None = None
        self._watch = Watch()

    @property
    def ahead(self) -> int:
        """Return how many rounds that bring something may be under way."""
        return len(self._lines[0].slots)

    @property
    def place(self) -> tuple[int, ...]:
        """Return what the next pass depends on besides its tensors: which arena it uses, and which
        slots come first."""
        return self._arenas, *(line.turn for line in self._lines)

    def reserve(self, there: int, back: int = 0) -> None:
        """Make an arena whose slots hold so many bytes, unless there is one."""
        if not torch.cuda.is_current_stream_capturing():
            self._follow()
        sizes = [padded(max(n, ALIGNMENT)) for n in (there, back)]
        if self._arena is not None and all(
            line.slot_bytes >= n for line, n in zip(self._lines, sizes, strict=True)
        ):
            return
        torch.cuda.synchronize(self._device)
        dist.barrier(self._control)
        self._arena = None
        flags = self._ranks * (THERE + BACK)
        whole = padded(2 * flags * _FLAG)
        for line, size, most in zip(self._lines, sizes, (THERE, BACK), strict=True):
            line.slot_bytes, line.start = max(line.slot_bytes, size), whole
            fewer = not line.first and line.slot_bytes > SHORT_BYTES
            line.slots = [_Slot() for _ in range(most - fewer)]
            whole += line.slot_bytes * len(line.slots)
        memory = symmetric.empty(whole, dtype=torch.uint8, device=self._device)
        handle = symmetric.rendezvous(memory, self._group)
        memory.zero_()
        memory[flags * _FLAG : 2 * flags * _FLAG].view(torch.int32).fill_(1)  # every slot is free
        torch.cuda.synchronize(self._device)
        dist.barrier(self._control)
        self._arenas += 1
        self._arena = _Arena(memory, [int(p) for p in handle.buffer_ptrs])

    def begin(self, round_: Round, tensors: Sequence[Tensor]) -> _Landing:
        """Queue the copies of a round to all peers, and those of this rank's own rows."""
        arena, line = self._arena, self._lines[round_.back]
        assert arena is not None and round_.size <= line.slot_bytes, "no room is reserved"
        at = line.turn
        line.rounds += 1
        slot = line.slots[at]
        assert not slot.used, "a round begins before its slot is released"
        slot.used = True
        current = torch.cuda.current_stream(self._device)
        given = [t if fits(t) else t.contiguous() for t in tensors]
        copied = any(a is not b for a, b in zip(given, tensors, strict=True))
        brief = round_.back or copied
        ready = self._ready(current, brief)
        program = self._program(arena, line, round_, at, tuple(t.stride() for t in given))
        # tensors of the caller live until the end of the pass, which waits for the copies; to
        # record their streams would give the next call's tensors other addresses
        for peer in self._peers:
            self._send(line, peer, program.sends.get(peer, []), given, at, ready, brief)
        self._fill(program, given, slot, ready, brief)
        return _Landing(self, line, program.buffers, program.senders, at)

    def end(self) -> None:
        """Let the current stream wait for all copies that read this rank's memory."""
        current = torch.cuda.current_stream(self._device)
        for stream in self._busy:
            current.wait_stream(stream)
        self._busy.clear()
        for line in self._lines:
            for slot in line.slots:
                slot.filled = slot.released = None
        self._begun = None

    def record(self, graph: torch.cuda.CUDAGraph, pool: Any, work: Callable[[], None]) -> list[int]:
        """Record a pass as a graph without running it; return the numbers of its rounds."""
        before = [line.rounds for line in self._lines]
        with torch.cuda.stream(torch.cuda.Stream(self._device)):  # type: ignore[no-untyped-call]
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        made = []
        for line, rounds in zip(self._lines, before, strict=True):
            made.append(line.rounds - rounds)
            line.rounds = rounds
        return made

    def replay(self, graph: torch.cuda.CUDAGraph, rounds: list[int]) -> None:
        """Run a recorded pass on the current stream."""
        self._follow()
        current = torch.cuda.current_stream(self._device)
        reached = current.record_event()
        graph.replay()
        for line, count in zip(self._lines, rounds, strict=True):
            line.rounds += count
        self._watch.add(reached, current.record_event(), self._peers)

    def arrived(self, line: _Line, senders: list[int], at: int) -> None:
        """Let the current stream wait for the rows of a round."""
        current = torch.cuda.current_stream(self._device)
        filled = line.slots[at].filled
        if filled is not None:
            current.wait_event(filled)
        recording = torch.cuda.is_current_stream_capturing()
        reached = None if recording else current.record_event()
        for sender in senders:
            take_flag(self._address(self._me, "arrived", sender, line, at), current.cuda_stream)
        if reached is not None:
            self._watch.add(reached, current.record_event(), senders)

    def released(self, line: _Line, at: int) -> None:
        """Tell the peers that a slot is free, after what is queued now."""
        event = torch.cuda.current_stream(self._device).record_event()
        line.slots[at].released, line.slots[at].used = event, False
        self._use(self._signals).wait_event(event)
        for peer in self._peers:
            raise_flag(self._address(peer, "free", self._me, line, at), self._signals.cuda_stream)

    def _follow(self) -> None:
        """Let the current stream come after the last pass, which may have been on another one."""
        current = torch.cuda.current_stream(self._device)
        if self._home is not None and self._home != current:
            current.wait_stream(self._home)
        self._home = current

    def _use(self, stream: torch.cuda.Stream) -> torch.cuda.Stream:
        self._busy[stream] = None
        return stream

    def _ready(self, current: torch.cuda.Stream, fresh: bool) -> torch.cuda.Event:
        if self._begun is None:
            self._begun = current.record_event()
        return current.record_event() if fresh else self._begun

    def _send(
        self,
        line: _Line,
        peer: int,
        copies: list[Copy],
        given: list[Tensor],
        at: int,
        ready: torch.cuda.Event,
        brief: bool,
    ) -> None:
        """Queue the copies to a peer, which come when its slot is free.

        A slot that gets nothing from here is free again for the next round like all others. `brief`
        says that the tensors may be freed before the copies are done.
        """
        stream = self._use(line.streams[peer])
        raw = stream.cuda_stream
        stream.wait_event(ready)
        take_flag(self._address(self._me, "free", peer, line, at), raw)
        for copy in copies:
            copy.run(given[copy.tensor].data_ptr(), raw)
        for tensor in {copy.tensor for copy in copies if brief}:
            given[tensor].record_stream(stream)
        if copies:
            raise_flag(self._address(peer, "arrived", self._me, line, at), raw)

    def _fill(
        self,
        program: _Program,
        given: list[Tensor],
        slot: _Slot,
        ready: torch.cuda.Event,
        brief: bool,
    ) -> None:
        """Put this rank's own rows into its landing buffers.

        Copies within a GPU take multiprocessors, a few of them as soon as a kernel leaves them.
        """
        slot.filled = None
        if not program.own:
            return
        self._use(self._own).wait_event(ready)
        if slot.released is not None:
            self._own.wait_event(slot.released)
        with torch.cuda.stream(self._own):
            for part, target in program.own:
                target.copy_(part.of(given))
        for tensor in {part.tensor for part, _ in program.own if brief}:
            given[tensor].record_stream(self._own)
        slot.filled = self._own.record_event()

    def _program(
        self,
        arena: _Arena,
        line: _Line,
        round_: Round,
        at: int,
        strides: tuple[tuple[int, ...], ...],
    ) -> _Program:
        """Return the copies of a round into a slot, which are prepared once for tensors of some
        strides."""
        key = (round_, at, strides)
        if (program := arena.programs.get(key)) is None:
            buffers = self._buffers(arena, line.place(at), round_)
            own = [
                (part, place.of(buffers, (part.rows.stop - part.rows.start) // part.step))
                for part, place in round_.own
            ]
            sends: dict[int, list[Copy]] = {}
            for send in round_.sends:
                copy = self._copy(arena, send, line.place(at), strides[send.part.tensor])
                sends.setdefault(send.peer, []).append(copy)
            senders = sorted({part.peer for part in round_.receives})
            program = _Program(buffers, sends, own, senders)
            arena.programs[key] = program
        return program

    def _copy(self, arena: _Arena, send: Send, start: int, strides: tuple[int, ...]) -> Copy:
        part, (buffer, row, _) = send.part, send.place
        (batches, heads, rows, dim), dtype = send.there[buffer]
        target = arena.addresses[send.peer] + start
        target += bytes_of(*send.there[:buffer]) + row * dim * dtype.itemsize
        begin = part.heads.start * strides[1] + part.rows.start * strides[2]
        count = part.rows.stop - part.rows.start
        return Copy(
            part.tensor, begin * dtype.itemsize, strides[0] * dtype.itemsize,
            strides[1] * dtype.itemsize, target, rows * dim * dtype.itemsize, batches, heads,
            count * dim * dtype.itemsize,
        )  # fmt: skip

    def _buffers(self, arena: _Arena, begin: int, round_: Round) -> list[Tensor]:
        buffers = []
        for shape, dtype in round_.buffers:
            size = prod(shape) * dtype.itemsize
            buffers.append(arena.memory[begin : begin + size].view(dtype).view(shape))
            begin += bytes_of((shape, dtype))
        return buffers

    def _address(self, rank: int, what: str, peer: int, line: _Line, slot: int) -> int:
        """Return where a rank keeps the flag of what a peer has done with a slot."""
        assert self._arena is not None
        index = ((what == "free") * self._ranks + peer) * (THERE + BACK) + line.first + slot
        return self._arena.addresses[rank] + _FLAG * index


def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream whose copies come before kernels that wait, too."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


class _Landing:
    def __init__(
        self, exchange: Direct, line: _Line, buffers: list[Tensor], senders: list[int], at: int
    ) -> None:
        self.buffers = buffers
        self._exchange, self._line, self._senders, self._at = exchange, line, senders, at

    def arrive(self) -> None:
        """Let the current stream wait until everything is there."""
        self._exchange.arrived(self._line, self._senders, self._at)

    def release(self) -> None:
        """Free the slot after what is queued on the current stream."""
        self._exchange.released(self._line, self._at)
