"""FP8 layers whose parameters are sharded over two processes (FSDP2), on a CPU."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from gpudeck.accel import precision

RANKS = 2
RECIPES = ("delayed", "row", "block")


class Block(nn.Module):
    """A layer of a model; with `again` its forward pass is computed twice instead of kept."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.up, self.down, self.again = nn.Linear(24, 150), nn.Linear(150, 24, bias=False), again

    def inner(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.again:
            return x + checkpoint(self.inner, x, use_reentrant=False)
        return x + self.inner(x)


def model(recipe: str | None, *, again: bool = False) -> nn.Sequential:
    torch.manual_seed(4)
    net = nn.Sequential(Block(again=again), Block(again=again))
    return net if recipe is None else precision.convert(net, recipe)


def batch(step: int, rank: int) -> Tensor:
    return torch.randn(9, 24, generator=torch.Generator().manual_seed(10 * step + rank))


def loss_of(net: nn.Module, step: int, rank: int) -> Tensor:
    x = batch(step, rank)
    return (net(x) - x.sin()).square().mean()


def one_process(recipe: str, steps: int) -> tuple[list[nn.Module], list[list[Tensor]]]:
    """Train a copy for each rank on that rank's batches, with the mean of their gradients."""
    copies = [model(recipe) for _ in range(RANKS)]
    losses: list[list[Tensor]] = []
    for step in range(steps):
        losses.append([loss_of(net, step, rank) for rank, net in enumerate(copies)])
        gradients = [
            torch.autograd.grad(loss, list(net.parameters()))
            for loss, net in zip(losses[-1], copies, strict=True)
        ]
        with torch.no_grad():
            for net in copies:
                for p, *found in zip(net.parameters(), *gradients, strict=True):
                    p.sub_(0.1 * sum(found) / RANKS)
                precision.update_scales(net)
    return copies, losses


def sharded(recipe: str, *, again: bool) -> nn.Module:
    net = model(recipe, again=again)
    for block in net:
        fully_shard(block)
    return fully_shard(net)


def trained(net: nn.Module, rank: int, first: int, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(net, step, rank)
        loss.backward()
        optimizer.step()
        precision.update_scales(net)
        losses.append(float(loss.detach()))
    return losses


def process(rank: int, folder: str, recipe: str, again: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS
    )
    copies, losses = one_process(recipe, 4)
    net = sharded(recipe, again=again)
    found = trained(net, rank, 0, 2)
    # what a checkpoint holds: the state dict of the unconverted model, and the histories
    middle = {n: x.full_tensor().clone() for n, x in net.state_dict().items()}
    saved = copy.deepcopy(precision.histories(net))
    found += trained(net, rank, 2, 2)
    torch.testing.assert_close(found, [float(step[rank].detach()) for step in losses])
    last = {n: x.full_tensor() for n, x in net.state_dict().items()}
    torch.testing.assert_close(last, dict(copies[rank].state_dict()), rtol=1e-5, atol=1e-6)
    plain = model(None)
    plain.load_state_dict(last)
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in net.named_parameters()]
    resumed = model(recipe, again=again)
    resumed.load_state_dict(middle)
    for block in resumed:
        fully_shard(block)
    fully_shard(resumed)
    precision.load_histories(resumed, saved)
    assert trained(resumed, rank, 2, 2) == found[2:]
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "again"), [("delayed", True), *((recipe, recipe == "block") for recipe in RECIPES)]
)
def test_two_processes_train_as_one_does_and_go_on_bit_for_bit(recipe, again, tmp_path: Path):
    torch.multiprocessing.spawn(process, (str(tmp_path), recipe, again), nprocs=RANKS)
