"""Attention that is easily taken for something else computes what it did, or is left alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.inject.rewrite import changes

from .adversaries import sources

NASTY = sources()
SIZES = [(2, 3, 6, 8), (4, 4, 4, 4), (1, 1, 2, 2)]
"""Batch, heads, tokens and features; where all are equal, axes are easily confused."""


@pytest.fixture(autouse=True)
def names_of_torch():
    """Undo what people's modules do to torch."""
    kept = [(torch, "matmul"), (functional, "softmax"), (Tensor, "__matmul__")]
    before = [getattr(home, name) for home, name in kept]
    yield
    for (home, name), value in zip(kept, before, strict=True):
        setattr(home, name, value)


CHANGED = "changed in place after attention scores were made of it"
ROUNDED = {"in half precision within": 3e-2}
"""The limit for programs that round within."""


def run(source: str, size: tuple[int, ...], *, train: bool):
    """Return the output and, if it trains, the gradients, or the error."""
    b, h, s, d = size
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(b, h, s, d, generator=generator) for _ in range(3)]
    leaves.append(torch.randn(s, s, generator=generator))
    mask = torch.rand(s, s, generator=generator) < 0.6
    mask[:, 0] = True
    names: dict = {}
    exec(compile(source, "nasty.py", "exec"), names)
    for t in leaves:
        t.requires_grad_(train)
    try:
        with torch.set_grad_enabled(train):
            out = names["attend"](*leaves[:3], mask, leaves[3])
            if not train:
                return out, ()
            weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
            loss = (out.nan_to_num(0.0) * weights).sum()
        return out.detach(), torch.autograd.grad(loss, leaves, allow_unused=True)
    except RuntimeError as e:
        return str(e), ()


@pytest.mark.parametrize("name", NASTY)
def test_nothing_is_rewritten_wrongly(name, tmp_path, names_of_torch):
    path = tmp_path / "nasty.py"
    path.write_text(NASTY[name])
    found, _ = changes([path])
    kept = (torch.matmul, functional.softmax, Tensor.__matmul__)
    for size, train in itertools.product(SIZES if found else (), (True, False)):
        results = []
        for text in (NASTY[name], found[0].text_after):
            torch.matmul, functional.softmax, Tensor.__matmul__ = kept
            results.append(run(text, size, train=train))
        (out, grads), (ours, our_grads) = results
        if isinstance(out, str) or isinstance(ours, str):
            # an error in both, or one that says what to do
            assert isinstance(ours, str)
            assert isinstance(out, str) or CHANGED in ours
            continue
        limit = ROUNDED.get(name, 1e-5)
        torch.testing.assert_close(ours, out, rtol=10 * limit, atol=limit, equal_nan=True)
        for mine, theirs in zip(our_grads, grads, strict=True):
            assert (mine is None) == (theirs is None)
            if theirs is not None:
                torch.testing.assert_close(
                    mine, theirs, rtol=200 * limit, atol=10 * limit, equal_nan=True
                )
