"""Generated variants are rewritten right or left alone, judged by running them."""

from __future__ import annotations

import pytest
import torch

from gpudeck.accel.inject.rewrite import changes

from .variants import variant

B, H, S, D = 2, 2, 6, 8


def run(source: str, inputs: list[torch.Tensor], mask: torch.Tensor, bias: torch.Tensor):
    names: dict = {}
    exec(compile(source, "variant.py", "exec"), names)
    torch.manual_seed(0)
    leaves = [t.clone().requires_grad_() for t in (*inputs, bias)]
    out = names["attend"](*leaves[:3], mask, leaves[3])
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return out, torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)


def judge(seed: int, path) -> tuple[bool, bool]:
    """Return whether a variant is a decoy, and whether it is linked; raise where that is wrong."""
    made = variant(seed)
    path.write_text(made.source)
    found, _ = changes([path])
    if not found:
        return made.decoy, False
    generator = torch.Generator().manual_seed(seed)
    shape = (B * H, S, D) if made.folded else (B, H, S, D)
    inputs = [torch.randn(shape, generator=generator) for _ in range(3)]
    bias = torch.randn(S, S, generator=generator)
    mask = torch.rand(S, S, generator=generator) < 0.6
    mask[:, 0] = True
    for visible in (mask, torch.ones(S, S, dtype=torch.bool)):
        out, grads = run(made.source, inputs, visible, bias)
        ours, our_grads = run(found[0].text_after, inputs, visible, bias)
        torch.testing.assert_close(ours, out, rtol=1e-4, atol=1e-5, msg=made.source)
        for mine, theirs in zip(our_grads, grads, strict=True):
            if theirs is not None:
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=made.source)
    return made.decoy, True


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 30), pytest.param(40, 200, marks=pytest.mark.slow),
     pytest.param(50_000, 500, marks=pytest.mark.slow)],
)  # fmt: skip
def test_no_variant_is_rewritten_wrongly_and_four_fifths_are_found(first, count, tmp_path):
    judged = [judge(seed, tmp_path / f"v{seed}.py") for seed in range(first, first + count)]
    assert not any(linked for decoy, linked in judged if decoy)
    honest = [linked for decoy, linked in judged if not decoy]
    assert sum(honest) >= 0.8 * len(honest)
