"""Exchange by the messages of torch.distributed: NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.distributed.exchange import Round, bytes_of


class Messages:
    """One message for each pair of ranks and round; buffers are new in each round."""

    ahead = 2

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.name = f"messages of {dist.get_backend(group)}"
        self._group = group

    def reserve(self, there: int, back: int = 0) -> None:
        """Do nothing: each round has buffers of its own."""

    def begin(self, round_: Round, tensors: Sequence[Tensor]) -> _Landing:
        """Post all messages of the round."""
        device = tensors[0].device
        buffers = [torch.zeros(s, dtype=t, device=device) for s, t in round_.buffers]
        for part, place in round_.own:
            source = part.of(tensors)
            place.of(buffers, source.shape[2]).copy_(source)
        by_peer = attrgetter("peer")
        outgoing = [
            (peer, _packed([send.part.of(tensors) for send in sends]))
            for peer, sends in groupby(sorted(round_.sends, key=by_peer), by_peer)
        ]
        incoming = []
        for peer, receives in groupby(sorted(round_.receives, key=by_peer), by_peer):
            targets = [receive.place.of(buffers, receive.rows) for receive in receives]
            size = sum(map(_size, targets))
            incoming.append((peer, targets, torch.empty(size, dtype=torch.uint8, device=device)))
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
        received = [(targets, data) for _, targets, data in incoming]
        return _Landing(buffers, received, works, [data for _, data in outgoing])

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


class _Landing:
    def __init__(
        self,
        buffers: list[Tensor],
        received: list[tuple[list[Tensor], Tensor]],
        works: list[dist.Work],
        sent: list[Tensor],
    ) -> None:
        self.buffers = buffers
        self._received, self._works, self._sent = received, works, sent

    def arrive(self) -> None:
        """Wait for the messages of this round, and put the rows in their places."""
        for work in self._works:
            work.wait()
        for targets, data in self._received:
            begin = 0
            for target in targets:
                size = target.numel() * target.element_size()
                piece = data[begin : begin + size].view(target.dtype)
                target.copy_(piece.view(target.shape))
                begin += _size(target)
        self._sent.clear()

    def release(self) -> None:
        """Do nothing: the buffers belong to this round alone."""


def _size(t: Tensor) -> int:
    return bytes_of((tuple(t.shape), t.dtype))


def _packed(sources: list[Tensor]) -> Tensor:
    """Return rows for one peer, end to end."""
    packed = sources[0].new_empty(sum(map(_size, sources)), dtype=torch.uint8)
    begin = 0
    for source in sources:
        place = packed[begin : begin + source.numel() * source.element_size()]
        place.view(source.dtype).view(source.shape).copy_(source)
        begin += _size(source)
    return packed
