"""Divide a run over the processes that torchrun starts, one a GPU.

Each process computes its share of the sequences, or of the tokens of each sequence. By PyTorch's
FSDP2 it keeps its share of the weights and of what the optimizer remembers. Where that is not
possible, each process has the whole model, and gradients are summed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from gpudeck.accel.training.settings import Settings


class Ranks:
    """Know the processes of a run; without torchrun there is one, and nothing is divided."""

    def __init__(self, device: torch.device, settings: Settings) -> None:
        """Meet the other processes.

        Args:
            device: that of this process.
            settings: of the run.
        """
        self.count, self.rank = count_ranks(), rank_of()
        self.sharded = self.count > 1 and not keeps_whole(settings)
        self.by_tokens = self.count > 1 and settings.split == "tokens"
        self.mesh: DeviceMesh | None = None
        if self.count > 1:
            if not dist.is_initialized():
                dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
            self.mesh = init_device_mesh(device.type, (self.count,))

    @property
    def first(self) -> bool:
        """Return whether this process writes what the run leaves."""
        return self.rank == 0

    def place(self, device: torch.device) -> torch.device:
        """Return where the whole model is made: not on a GPU that keeps only a share of it."""
        return torch.device("cpu") if self.sharded else device

    @property
    def rows(self) -> tuple[int, int]:
        """Return the number of this process, and that of all among which sequences are divided."""
        return (0, 1) if self.by_tokens else (self.rank, self.count)

    @property
    def mean(self) -> int:
        """Return by what the sum of all processes' gradients is divided: FSDP2 takes a mean."""
        return self.count if self.sharded else 1

    def shard(self, model: nn.Module, layers: Iterable[nn.Module], *, again: bool) -> None:
        """Divide the weights of a model; FSDP2 moves each part to the GPU when it divides it.

        Args:
            model: it is changed in place.
            layers: the parts whose weights are gathered together.
            again: gather them for the backward pass again, and keep nothing in between.
        """
        if not self.sharded:
            return
        for layer in layers:
            fully_shard(layer, mesh=self.mesh, reshard_after_forward=again)
        fully_shard(model, mesh=self.mesh)

    def add_gradients(self, weights: Iterable[Tensor]) -> None:
        """Sum the gradients of all processes where FSDP2 has not done so."""
        if self.mesh is None or self.sharded:
            return
        for weight in weights:
            if weight.grad is None:  # none of this process's tokens reached it
                weight.grad = torch.zeros_like(weight)
            dist.all_reduce(weight.grad)

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of a number over all processes."""
        if self.mesh is not None:
            dist.all_reduce(x)
        return x

    def any(self, wanted: bool) -> bool:
        """Return whether one of the processes wants something."""
        if self.mesh is None:
            return wanted
        found = torch.tensor(float(wanted))
        dist.all_reduce(found)
        return bool(found)

    def wait(self) -> None:
        """Wait for the other processes."""
        if self.mesh is not None:
            dist.barrier()


def keeps_whole(settings: Settings) -> bool:
    """Return whether each process of a run has the whole model: what is trained beside a frozen one
    is small, and Muon needs whole matrices."""
    return settings.frozen or settings.optimizer == "muon"


def count_ranks() -> int:
    """Return the number of processes that torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank_of() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def divide(model: nn.Module) -> None:
    """Give up the whole weights that a forward pass left, so that each process has its share."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def whole(x: Tensor) -> Tensor:
    """Return a tensor with the shares of all processes."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def own_share(x: Tensor) -> Tensor:
    """Return this process's share of a tensor that may be divided."""
    return x.to_local() if isinstance(x, DTensor) else x


def share_like(own: Tensor, other: Tensor) -> Tensor:
    """Return a tensor of which `own` is this process's share, divided as `other` is, of which it
    has all but the last size."""
    if not isinstance(other, DTensor):
        return own
    shape = torch.Size((*other.shape[:-1], own.shape[-1]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        own, other.device_mesh, other.placements, run_check=False, shape=shape, stride=stride
    )


@torch.no_grad()
def divided_like(value: Tensor, weight: Tensor) -> Tensor:
    """Return a copy of a whole tensor where a weight is, divided as the weight is if it has as many
    rows."""
    if isinstance(weight, DTensor) and value.dim():
        place = weight.device_mesh.device_type
        return distribute_tensor(value.to(place), weight.device_mesh, weight.placements)
    return value.to(weight.device, copy=True)


@torch.no_grad()
def fill(x: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into one that may be divided."""
    if isinstance(x, DTensor):
        value = distribute_tensor(value.to(x.device, x.dtype), x.device_mesh, x.placements)
    x.copy_(value)
