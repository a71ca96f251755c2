"""The fused kernel of the manual that is built of blocks in Gluon, on the emulated machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.emulation.hopper import Hopper
from tests.emulation.machine import Deadlock, Defect, Race

MANUAL = Path(__file__).parents[2] / "docs" / "manual" / "tiles.md"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The example as a module of a package of its own."""
    (tmp_path / "manual_tiles").mkdir()
    (tmp_path / "manual_tiles" / "__init__.py").touch()
    text = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[1]
    (tmp_path / "manual_tiles" / "example.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return "manual_tiles"


def check(package, **machine):
    random = torch.Generator().manual_seed(3)
    x, w = (torch.randn(n, 200, generator=random).bfloat16() for n in (70, 300))
    x[3] *= 40  # scores whose powers overflow float32 without the running maximum
    target = torch.randint(300, (70,), generator=random)
    loss = Hopper(package=package, **machine).module("example").cross_entropy(x, w, target)
    exact = functional.cross_entropy(x.double() @ w.double().t(), target, reduction="none")
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.emulation) for n in (1, 2))]
)
def test_the_fused_kernel_of_the_manual_gives_the_loss(package, seed):
    check(package, seed=seed)


@pytest.mark.emulation
@pytest.mark.parametrize(
    "change",
    [
        ("await_tile(bars[0], step)", "pass"),
        ("release_tile(bars[1], step)", "pass"),
        ("chosen += ", "chosen = "),
        ("block * BN + gl.arange", "gl.arange"),
    ],
)
def test_a_slip_in_the_kernel_of_the_manual_is_found(package, change):
    with pytest.raises((AssertionError, Deadlock, Defect, Race)):
        check(package, changes={"example.py": change})
