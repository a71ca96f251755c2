"""Keep what ranks share: their groups for control and messages, and what they have agreed on."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gpudeck.accel.distributed.choice import Choice
from gpudeck.accel.distributed.cost import CPU, DIRECT, MESSAGES_GPU, Links
from gpudeck.accel.distributed.exchange import Exchange
from gpudeck.accel.distributed.message_exchange import Messages
from gpudeck.accel.distributed.patience import PATIENCE_S
from gpudeck.accel.distributed.problem import Problem

if TYPE_CHECKING:
    from gpudeck.accel.distributed.replays import Replays

DIRECT_STRATEGIES = {"gather", "ulysses"}
"""Their rounds go by direct copies where GPUs see each other's memory."""


class World:
    """The ranks of one group of torch.distributed."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.ranks = dist.get_process_group_ranks(group)
        self.size, self.me = len(self.ranks), dist.get_rank(group)
        self._agreed: set[str] = set()
        self._direct: Exchange | None = None
        self._near: bool | None = None
        self._replays: Replays | None = None

    def agree(self, asked: str, *, every_time: bool) -> None:
        """Make sure that all ranks ask for the same.

        Args:
            asked: the request in words.
            every_time: ask each time; else the ranks speak about each request only once, which
                spares the host's time.

        Raises:
            ValueError: on every rank, with what each one asked for.
            RuntimeError: if a rank does not answer.
        """
        if asked in self._agreed and not every_time:
            return
        heard: list[str] = [""] * self.size
        try:
            dist.all_gather_object(heard, asked, group=self._control)
        except RuntimeError as e:
            raise RuntimeError(
                f"rank {self.me} of {self.size} waited in vain for the others to begin the same"
                f" attention: {_first_line(e)}"
            ) from e
        if len(set(heard)) > 1:
            each = "; ".join(f"rank {rank}: {what}" for rank, what in enumerate(heard))
            raise ValueError(f"all ranks must call distributed_attention alike; got {each}")
        self._agreed.add(asked)

    def links(self, device: torch.device) -> Links:
        """Return how fast ranks are linked."""
        if device.type != "cuda":
            return CPU
        return DIRECT if self._sees_all(device) else MESSAGES_GPU

    def exchange(self, device: torch.device, problem: Problem, choice: Choice) -> Exchange:
        """Return the way in which a pass moves tensors of a device."""
        if device.type != "cuda":
            return self._cpu_messages
        if (
            choice.strategy not in DIRECT_STRATEGIES
            or not problem.consecutive
            or not self._sees_all(device)
        ):
            return self._gpu_messages
        if self._direct is None:
            from gpudeck.accel.distributed.direct import Direct  # it needs CUDA

            self._direct = Direct(self.group, self._control, device)
        return self._direct

    def ways(
        self, device: torch.device, problem: Problem, choice: Choice
    ) -> tuple[Any, Replays | None]:
        """Return how a pass moves tensors, and the graphs that replay it, if it is short and this
        driver can record it."""
        exchange = self.exchange(device, problem, choice)
        if device.type != "cuda" or exchange is self.__dict__.get("_gpu_messages"):
            return exchange, None
        from gpudeck.accel.distributed import replays  # it needs CUDA

        if choice.seconds > replays.SHORT_S or not replays.records_flags(device):
            return exchange, None
        if self._replays is None:
            self._replays = replays.Replays()
        return exchange, self._replays

    def described(self, device: torch.device, problem: Problem, choice: Choice) -> str:
        """Say how a pass moves tensors."""
        exchange, graphs = self.ways(device, problem, choice)
        return f"{exchange.name}, replayed as a CUDA graph" if graphs else str(exchange.name)

    def _sees_all(self, device: torch.device) -> bool:
        """Return whether this rank's GPU can write the memory of all other ranks' GPUs.

        All ranks must have come here: they ask each other once.
        """
        if self._near is None:
            heard: list[tuple[str, int]] = [("", 0)] * self.size
            index = torch.cuda.current_device() if device.index is None else device.index
            here = (socket.gethostname(), index)
            dist.all_gather_object(heard, here, group=self._control)
            near = [
                host == here[0] and (at == index or torch.cuda.can_device_access_peer(index, at))
                for host, at in heard
            ]
            self._near = all(near) and len(set(heard)) == self.size
        return self._near

    @cached_property
    def _control(self) -> dist.ProcessGroup:
        return self._new("gloo")

    @cached_property
    def _cpu_messages(self) -> Exchange:
        return Messages(self._control)

    @cached_property
    def _gpu_messages(self) -> Exchange:
        return Messages(self._new("nccl"))

    def _new(self, backend: str) -> dist.ProcessGroup:
        group = dist.new_group(
            self.ranks,
            timeout=timedelta(seconds=PATIENCE_S),
            backend=backend,
            use_local_synchronization=True,
        )
        assert isinstance(group, dist.ProcessGroup)
        return group


_WORLDS: dict[dist.ProcessGroup, World] = {}


def world_of(group: dist.ProcessGroup) -> World:
    """Return the world of a group, which is made once."""
    world = _WORLDS.get(group)
    if world is None:
        for old in [g for g in _WORLDS if g not in dist.distributed_c10d._world.pg_map]:
            del _WORLDS[old]
        world = _WORLDS[group] = World(group)
    return world


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def resolved(name: str) -> dist.ProcessGroup:
    """Return the group of a name, as torch's own compiled collectives find it."""
    find: Callable[[str], dist.ProcessGroup] = dist.distributed_c10d._resolve_process_group  # type: ignore[attr-defined,assignment]
    return find(name)
