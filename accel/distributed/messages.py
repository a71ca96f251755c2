"""Exchange by the messages of torch.distributed: NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.distributed.exchange import Receive, Round, Send, bytes_of, place


class Messages:
    """One message for each pair of ranks and round; buffers are new in each round."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.name = f"messages of {dist.get_backend(group)}"
        self._group = group
        self._sending: list[tuple[Tensor, list[dist.Work]]] = []

    def reserve(self, size: int) -> None:
        """Do nothing: each round has buffers of its own."""

    def begin(self, round_: Round) -> _Landing:
        """Post all messages of the round."""
        device = (round_.own or round_.sends or [None])[0]
        where = device.source.device if device is not None else self._device()
        buffers = [torch.zeros(s, dtype=t, device=where) for s, t in round_.shapes]
        for mine in round_.own:
            rows = mine.source.shape[2]
            place(buffers[mine.buffer], mine.row, rows, mine.step).copy_(mine.source)
        by_peer = attrgetter("peer")
        outgoing = [
            (peer, _packed(list(sends)))
            for peer, sends in groupby(sorted(round_.sends, key=by_peer), by_peer)
        ]
        incoming = []
        for peer, receives in groupby(sorted(round_.receives, key=by_peer), by_peer):
            parts = list(receives)
            size = sum(_size(buffers[part.buffer], part) for part in parts)
            incoming.append((peer, parts, torch.empty(size, dtype=torch.uint8, device=where)))
        ops = [
            dist.P2POp(dist.isend, data, group=self._group, group_peer=peer)
            for peer, data in outgoing
            if data.numel()
        ] + [
            dist.P2POp(dist.irecv, data, group=self._group, group_peer=peer)
            for peer, _, data in incoming
            if data.numel()
        ]
        works = dist.batch_isend_irecv(ops) if ops else []
        return _Landing(buffers, incoming, works, [data for _, data in outgoing])

    def end(self) -> None:
        """Do nothing: messages have been packed, or their landing has waited for them."""

    def pass_on(
        self, tensors: list[Tensor], to: int, source: int, shapes: list[torch.Size]
    ) -> list[Tensor]:
        """Send tensors to one rank, and return what another one sends, of these shapes."""
        given = [t.contiguous() for t in tensors]
        came = [t.new_empty(shape) for t, shape in zip(given, shapes, strict=True)]
        if to == dist.get_rank(self._group):
            return given
        ops = []
        for t, c in zip(given, came, strict=True):
            ops += [
                dist.P2POp(dist.isend, t, group=self._group, group_peer=to),
                dist.P2POp(dist.irecv, c, group=self._group, group_peer=source),
            ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return came

    def _device(self) -> torch.device:
        if dist.get_backend(self._group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


class _Landing:
    def __init__(
        self,
        buffers: list[Tensor],
        incoming: list[tuple[int, list[Receive], Tensor]],
        works: list[dist.Work],
        outgoing: list[Tensor],
    ) -> None:
        self.buffers = buffers
        self._incoming, self._works, self._outgoing = incoming, works, outgoing

    def arrive(self) -> None:
        """Wait for the messages of this round, and put the rows in their places."""
        for work in self._works:
            work.wait()
        for _, parts, data in self._incoming:
            begin = 0
            for part in parts:
                buffer = self.buffers[part.buffer]
                target = place(buffer, part.row, part.rows, part.step)
                size = target.numel() * target.element_size()
                piece = data[begin : begin + size].view(buffer.dtype)
                target.copy_(piece.view(target.shape))
                begin += _size(buffer, part)
        self._outgoing.clear()

    def release(self) -> None:
        """Do nothing: the buffers belong to this round alone."""


def _size(buffer: Tensor, part: Receive) -> int:
    return bytes_of((*buffer.shape[:2], part.rows, buffer.shape[3]), buffer.dtype)


def _packed(sends: list[Send]) -> Tensor:
    """Return the rows of all sends to one peer, end to end."""
    sizes = [bytes_of(tuple(send.source.shape), send.source.dtype) for send in sends]
    packed = sends[0].source.new_empty(sum(sizes), dtype=torch.uint8)
    begin = 0
    for send, size in zip(sends, sizes, strict=True):
        source = send.source
        place = packed[begin : begin + source.numel() * source.element_size()]
        place.view(source.dtype).view(source.shape).copy_(source)
        begin += size
    return packed
