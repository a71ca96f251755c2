"""Attention written in many forms, each a function of the module that gives its products.

With `ORIGINAL` they are the originals, with `gpudeck.accel.inject.link` what a change makes of
them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

ORIGINAL = SimpleNamespace(
    matmul=torch.matmul, bmm=torch.bmm, einsum=torch.einsum, baddbmm=torch.baddbmm,
    attend=torch.matmul,
)  # fmt: skip
B, H, S, D = 2, 3, 8, 16
CAUSAL = torch.ones(S, S).tril()
PADDING = torch.ones(B, S, dtype=torch.bool)
PADDING[0] = False  # no key at all
PADDING[1, 3:] = False
WINDOWS = torch.zeros(2, S, S)
WINDOWS[1, :4, 4:] = -100.0


def scaled_and_causal(m, q, k, v):
    att = m.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(CAUSAL[None, None] == 0, float("-inf"))
    att = F.dropout(F.softmax(att, dim=-1), 0.1, training=False)
    return m.attend(att, v)


def padded_with_blind_rows(m, q, k, v):
    a = m.matmul(q / 4.0, k.transpose(-2, -1))
    a = a.masked_fill(~PADDING[:, None, None], -1e9).masked_fill(CAUSAL == 0, -1e9)
    return torch.matmul(a.float().softmax(-1).type_as(v), v)


def blind_rows_are_nan(m, q, k, v):
    a = m.matmul(q, k.mT)
    a.masked_fill_(~PADDING[:, None, None], -math.inf)
    return torch.matmul(torch.softmax(a, -1), v)


def blind_rows_become_zero(m, q, k, v):
    a = m.matmul(q, k.mT).masked_fill(~PADDING[:, None, None], -math.inf)
    return torch.matmul(torch.nan_to_num(torch.softmax(a, -1)), v)


def keys_in_the_second_axis(m, q, k, v):
    s = m.einsum("ibhd,jbhd->ijbh", q, k)
    s *= 0.3
    s = s.masked_fill(torch.ones(2, 2).tril()[:, :, None, None] == 0, float("-inf"))
    return torch.einsum("ijbh,jbhd->ibhd", nn.Softmax(dim=1)(s), v)


def windows_share_a_mask(m, q, k, v, bias):
    a = m.matmul(q * 0.25, k.transpose(-2, -1)) + bias.unsqueeze(0)
    a = a.view(1, B, H, S, S) + WINDOWS.unsqueeze(1).unsqueeze(0)
    a = a.view(-1, H, S, S)
    return m.attend(nn.Softmax(-1)(a), v).transpose(1, 2).reshape(B, S, H * D)


def positions_in_two_directions(m, q, k, v, rows, columns):
    a = m.matmul(q * 0.2, k.transpose(-2, -1))
    a = a.view(-1, 2, 4, 2, 4) + rows[:, :, :, :, None] + columns[:, :, :, None, :]
    return m.attend(a.view(-1, S, S).softmax(-1), v)


def weights_on_the_right(m, q, k, v):
    w = F.softmax(m.bmm(q, k) * 0.3, dim=2).permute(0, 2, 1)
    return torch.bmm(v, w)


def heads_share_keys(m, q, k, v):
    s = m.einsum("b h i d, b j d -> b h i j", q, k) * 0.2
    s = s.masked_fill(~PADDING[:, None, None], -torch.finfo(s.dtype).max)
    p = s.softmax(dim=-1, dtype=torch.float32).to(s.dtype)
    return torch.einsum("b h i j, b j d -> b h i d", p, v)


def capped(m, q, k, v):
    s = torch.tanh(m.matmul(q, k.mT) * 0.25 / 5) * 5
    return m.attend((s + CAUSAL.log()).softmax(-1), v)


def baddbmm_and_where(m, q, k, v):
    q, k, v = (x.permute(2, 0, 1, 3).reshape(S, B * H, D) for x in (q, k, v))
    unread = torch.full((B * H, S, S), math.nan)
    s = m.baddbmm(unread, q.transpose(0, 1), k.transpose(0, 1).mT, beta=0.0, alpha=0.25)
    s = torch.where(CAUSAL.bool(), s.view(B, H, S, S), -1e4)
    return torch.bmm(s.softmax(-1).view(B * H, S, S), v.transpose(0, 1)).view(B, H, S, D)


def learned_temperature(m, q, k, v, log_scale):
    a = m.matmul(F.normalize(q, dim=-1), F.normalize(k, dim=-1).mT) * log_scale.exp()
    return m.attend(a.softmax(-1), v)


def keys_come_first(m, q, k, v):
    s = m.einsum("bhtd,bhsd->bhst", k, q)
    return torch.einsum("bhst,bhtd->bhsd", s.softmax(-1), v)


def divided_by_a_tensor(m, q, k, v, log_scale):
    return m.attend((m.matmul(q, k.mT) / log_scale.exp()).softmax(-1), v)


def bias_is_subtracted(m, q, k, v, bias):
    return m.attend((m.matmul(q, k.mT) - bias).softmax(-1), v)


def q_k_v():
    return [torch.randn(B, H, S, D) for _ in range(3)]


def flat_qkv():
    return [t[:, 0] for t in q_k_v()]


FORMS = {
    scaled_and_causal: q_k_v,
    padded_with_blind_rows: q_k_v,
    blind_rows_are_nan: q_k_v,
    blind_rows_become_zero: q_k_v,
    keys_in_the_second_axis: q_k_v,
    windows_share_a_mask: lambda: [*q_k_v(), torch.randn(H, S, S)],
    positions_in_two_directions: lambda: [
        *flat_qkv(), torch.randn(B, 2, 4, 2), torch.randn(B, 2, 4, 4)
    ],
    weights_on_the_right: lambda: [q_k_v()[0][:, 0], *(t[:, 0].mT for t in q_k_v()[1:])],
    heads_share_keys: lambda: [q_k_v()[0], *(t[:, 0] for t in q_k_v()[1:])],
    capped: q_k_v,
    baddbmm_and_where: q_k_v,
    learned_temperature: lambda: [*q_k_v(), torch.randn(H, 1, 1)],
    keys_come_first: q_k_v,
    divided_by_a_tensor: lambda: [*q_k_v(), torch.randn(H, 1, 1)],
    bias_is_subtracted: lambda: [*q_k_v(), torch.randn(H, S, S)],
}  # fmt: skip
