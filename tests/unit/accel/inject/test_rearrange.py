"""Scores that einops rearranges stay delayed if only their axes are reordered."""

from __future__ import annotations

import einops
import pytest
import torch

from gpudeck.accel.inject import link, record


@pytest.fixture(autouse=True)
def clean():
    record.clear()
    yield
    record.clear()


def attended(m, pattern, back, **sizes):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 8) for _ in range(3))
    a = m.rearrange(m.matmul(q, k.mT) * 0.3, pattern, **sizes)
    a = m.rearrange(a.softmax(-1), back, **sizes)
    return torch.matmul(a, v)


class Plain:
    rearrange, matmul = staticmethod(einops.rearrange), staticmethod(torch.matmul)


@pytest.mark.parametrize(
    ("pattern", "back", "sizes", "ran"),
    [
        ("b h i j -> h b i j", "h b i j -> b h i j", {}, "linked"),
        ("b h i j -> i b h j", "i b h j -> b h i j", {}, "linked"),
        ("b h i j -> (b h) i j", "(b h) i j -> b h i j", {"h": 3}, "computed as written"),
        ("b h i j -> b (h i) j", "b (h i) j -> b h i j", {"h": 3}, "computed as written"),
    ],
)
def test_rearranged_scores_give_what_the_program_gives(pattern, back, sizes, ran):
    ours = attended(link, pattern, back, **sizes)
    torch.testing.assert_close(ours, attended(Plain, pattern, back, **sizes))
    said = [str(row["what"]) for row in record.report()]
    assert all(what.startswith(ran) for what in said)
    assert said or ran != "linked"


def test_tensors_are_rearranged_by_einops():
    t = torch.arange(24).view(2, 3, 4)
    assert torch.equal(
        link.rearrange(t, "a b c -> c (a b)"), einops.rearrange(t, "a b c -> c (a b)")
    )


def test_a_wrong_pattern_is_the_error_of_einops():
    q = torch.randn(2, 3, 6, 8)
    with pytest.raises(einops.EinopsError):
        link.rearrange(link.matmul(q, q.mT), "b h i -> b i h")
