"""Causal masks that programs write by hand are computed as causal attention, others as masks."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from gpudeck.accel.inject import link, record

from .forms import ORIGINAL

S = 7
ONES = torch.ones(S, S)
LEAST = torch.finfo(torch.float32).min
AT = torch.arange(S)
BUFFER = torch.tril(torch.ones(1, 1, 32, 32))


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(0)
    record.clear()
    yield
    record.clear()


def q_k_v(queries=S):
    return [torch.randn(2, 3, n, 8) for n in (queries, S, S)]


def ran():
    return {row["what"] for row in record.report()}


CAUSAL = {
    "a buffer, cut": lambda a: a.masked_fill(BUFFER[:, :, :S, :S] == 0, -math.inf),
    "tril, inverted": lambda a: a.masked_fill(~ONES.tril().bool(), LEAST),
    "triu from 1": lambda a: a.masked_fill(ONES.triu(1) == 1, -1e9),
    "arange compared": lambda a: a.masked_fill(AT[:, None] < AT, -math.inf),
    "arange, where": lambda a: torch.where(AT[:, None] >= AT, a, LEAST),
    "-inf, added": lambda a: a + torch.full((S, S), -math.inf).triu(1),
    "1 - tril, times -1e9": lambda a: a + (1.0 - ONES.tril()) * -1e9,
    "the logarithm of tril": lambda a: a + ONES.tril().log(),
    "finfo.min, added": lambda a: a + torch.zeros(S, S).masked_fill(AT[:, None] < AT, LEAST),
    "filled twice": lambda a: a.masked_fill(AT[:, None] < AT, -1e9).masked_fill(
        AT[:, None] < AT - 1, -1e9
    ),
    "set by an index": lambda a: a.masked_fill_(ONES.triu(1).bool()[None, None], -1e30),
}
OTHERS = {
    "one key too many": lambda a: a.masked_fill(ONES.triu(2) == 1, -math.inf),
    "one key too few": lambda a: a.masked_fill(ONES.triu(1).fill_diagonal_(0)[:, :] > 0, -1e9)
    .masked_fill(torch.eye(S).roll(1, 0).tril(-1).bool(), -1e9),
    "turned around": lambda a: a.masked_fill(ONES.tril(-1) == 1, -math.inf),
    "with padding": lambda a: a.masked_fill(
        (AT[:, None] < AT) | (torch.tensor([S, 3])[:, None, None, None] <= AT), -1e9
    ),
    "with a bias below the diagonal": lambda a: a + (ONES.tril(-1) - 1e9 * ONES.triu(1)),
    "soft": lambda a: a + ONES.triu(1) * -3.0,
}  # fmt: skip


def attended(m, hide, q, k, v):
    return m.attend(hide(m.matmul(q, k.mT) * 0.3).softmax(-1), v)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_mask_is_no_longer_read(name):
    given = q_k_v()
    ours = attended(link, CAUSAL[name], *given)
    assert ran() == {"linked as causal attention"}
    torch.testing.assert_close(ours, attended(ORIGINAL, CAUSAL[name], *given))
    expected = F.scaled_dot_product_attention(*given, is_causal=True, scale=0.3)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", OTHERS)
def test_a_mask_that_differs_in_one_element_is_passed_as_it_is(name):
    given = q_k_v()
    ours = attended(link, OTHERS[name], *given)
    assert ran() == {"linked"}
    torch.testing.assert_close(ours, attended(ORIGINAL, OTHERS[name], *given))


def test_a_position_bias_stays_beside_a_causal_mask():
    bias = torch.randn(3, S, S, requires_grad=True)

    def hide(a):
        return (a + bias).masked_fill(AT[:, None] < AT, -math.inf)

    given = q_k_v()
    ours, theirs = attended(link, hide, *given), attended(ORIGINAL, hide, *given)
    assert ran() == {"linked as causal attention"}
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(out.square().sum(), bias)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*grads)


def test_a_row_that_two_masks_hide_together_is_nan_as_in_the_program():
    padding = torch.zeros(2, 1, 1, S, dtype=torch.bool)
    padding[1, ..., :3] = True

    def hide(a):
        return (a + torch.full((S, S), -math.inf).triu(1)).masked_fill(padding, -math.inf)

    given = q_k_v()
    ours, theirs = attended(link, hide, *given), attended(ORIGINAL, hide, *given)
    assert theirs.isnan().any()
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_fewer_queries_than_keys_stand_at_the_end():
    given = q_k_v(queries=3)

    def hide(a):
        return a.masked_fill(BUFFER[:, :, S - 3 : S, :S] == 0, -math.inf)

    torch.testing.assert_close(attended(link, hide, *given), attended(ORIGINAL, hide, *given))
    assert ran() == {"linked as causal attention"}
    record.clear()

    def from_the_start(a):
        return a.masked_fill(BUFFER[:, :, :3, :S] == 0, -math.inf)

    torch.testing.assert_close(
        attended(link, from_the_start, *given), attended(ORIGINAL, from_the_start, *given)
    )
    assert ran() == {"linked"}


@pytest.mark.parametrize(
    "mask",
    [ONES.tril().bool(), torch.full((S, S), -math.inf).triu(1), ONES.tril().bool()[None, None]],
)
def test_masks_of_sdpa_are_recognised_too(mask):
    given = q_k_v()
    ours = link.scaled_dot_product_attention(*given, attn_mask=mask)
    assert ran() == {"linked as causal attention"}
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(*given, attn_mask=mask))


PADDED = torch.zeros(2, 1, 1, S, dtype=torch.bool)
PADDED[1, ..., :3] = True
LATER = AT[:, None] < AT
MIXED = {
    "-inf added, -1e9 filled": lambda a: (a + torch.full((S, S), -math.inf).triu(1)).masked_fill(
        PADDED, -1e9
    ),
    "-1e9 filled, -inf added": lambda a: (
        a.masked_fill(PADDED, -1e9) + torch.full((S, S), -math.inf).triu(1)
    ),
    "-1e9 added, -1e9 filled": lambda a: (a + LATER * -1e9).masked_fill(PADDED, -1e9),
    "-1e9 filled, -1e9 added": lambda a: a.masked_fill(PADDED, -1e9) + LATER * -1e9,
    "-inf filled, -1e9 added": lambda a: a.masked_fill(LATER, -math.inf) + PADDED * -1e9,
    "least filled, least added": lambda a: a.masked_fill(LATER, LEAST) + PADDED * LEAST,
    "-1e9 filled for both": lambda a: a.masked_fill(LATER, -1e9).masked_fill(PADDED, -1e9),
    "-1e9 and -inf filled": lambda a: a.masked_fill(LATER, -1e9).masked_fill(PADDED, -math.inf),
    "-1e9 added for both": lambda a: a + LATER * -1e9 + PADDED * -1e9,
}
"""Rows that a mask and padding on the left hide together, each in another way."""


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_masks_hide_together_are_those_of_the_program(name):
    given = q_k_v()
    ours, theirs = attended(link, MIXED[name], *given), attended(ORIGINAL, MIXED[name], *given)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
