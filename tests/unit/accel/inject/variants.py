# ruff: noqa: E501 - lines of sources
"""Write attention as people do, with random names, layouts, products, scales, masks and decoys."""

from __future__ import annotations

import random
from typing import NamedTuple

HEAD = (
    "import math\nimport torch\nfrom torch import nn, einsum\nimport torch.nn.functional as F\n\n"
)


class Variant(NamedTuple):
    source: str
    folded: bool
    """Heads lie in the batch: [B*H,S,D] instead of [B,H,S,D]."""
    decoy: bool
    """It must be left alone, as something else is done with scores or weights."""


DECOYS = (
    "{a} = {a} * 0.5",
    "{a} = F.dropout({a}, 0.1)",
    "{a} = {a} / {a}.sum(-1, keepdim=True).clamp(min=1e-6) + 0.01",
    "LAST['weights'] = {a}",
    "{a} = {a}.masked_fill({a} < {a}.topk(2, -1)[0][..., -1:], 0.0)",
    "{a} = torch.sigmoid({a})",
    "{a} = {a}.detach()",
    "{a} = {a} ** 2",
    "{a} = {a} / {a}.norm(dim=-1, keepdim=True)",
    "{a} = {a}.softmax(-2)",
    "{a} = 0.5 * {a} + 0.5 / {a}.shape[-1]",
    "{a} = {a}.cumsum(-1)",
    "{a}[..., -1] = 0.0",
    "{a} = torch.where({a} > 0.1, {a}, 0.0)",
)


def variant(seed: int) -> Variant:
    """Return the source of a module with a function `attend(q, k, v, mask, bias)`."""
    r = random.Random(seed)
    q, k, v = r.choice([("q", "k", "v"), ("query", "key", "value"), ("xq", "keys", "values")])
    a = r.choice(["att", "scores", "dots", "sim", "attn_weights", "w_"])
    folded, decoy = r.random() < 0.35, r.random() < 0.2
    lines: list[str] = []
    scale = r.choice(["q", "both", "after", "sqrt", "none", "baddbmm" if folded else "dim"])
    if scale == "q":
        lines.append(f"{q} = {q} * {q}.shape[-1] ** -0.5")
    elif scale == "both":
        lines += [f"s = {q}.size(-1) ** -0.25", f"{q}, {k} = {q} * s, {k} * s"]
    turned = r.choice([f"{k}.transpose(-2, -1)", f"{k}.mT", f"{k}.transpose(-1, -2)"])
    dims = ("b", "") if folded else ("bh", "")
    spaced = r.choice(["", " "]).join
    i, j, d = r.choice([("i", "j", "d"), ("q", "k", "c"), ("t", "s", "e"), ("n", "m", "x")])
    named = [*dims[0]]
    equation = f"{spaced([*named, i, d])}, {spaced([*named, j, d])} -> {spaced([*named, i, j])}"
    products = [f"{q} @ {turned}", f"torch.matmul({q}, {turned})", f"{q}.matmul({turned})",
                f"einsum('{equation}', {q}, {k})", f"torch.einsum('{equation}', [{q}, {k}])"]  # fmt: skip
    if folded:
        products += [f"torch.bmm({q}, {turned})", f"{q}.bmm({turned})"]
    first = r.choice(products)
    if scale == "baddbmm":
        first = (f"torch.baddbmm(torch.empty({q}.shape[0], {q}.shape[1], {k}.shape[1]), {q},"
                 f" {turned}, beta=0, alpha=0.3)")  # fmt: skip
    lines.append(f"{a} = ({first}) * 0.4" if scale == "after" else f"{a} = {first}")
    if scale == "sqrt":
        lines.append(f"{a} = {a} / math.sqrt({k}.size(-1))")
    elif scale == "dim":
        lines.append(r.choice([f"{a} *= {k}.size(-1) ** -0.5", f"{a}.mul_(0.3)"]))
    if r.random() < 0.3:
        lines.append(r.choice([f"{a} = {a} + bias", f"{a} += bias", f"{a} = torch.add({a}, bias)"]))
    masks = [
        f"{a} = {a}.masked_fill(mask == 0, float('-inf'))",
        f"{a} = {a}.masked_fill(~mask, -1e9)",
        f"{a}.masked_fill_(~mask, -torch.finfo({a}.dtype).max)",
        f"{a} = torch.where(mask, {a}, torch.tensor(-1e9))",
        f"{a} = {a}.where(mask, -1e9)" if seed < 0 else f"{a} = torch.where(~mask, -1e9, {a})",
        f"{a} = {a} + torch.zeros({a}.shape[-2:]).masked_fill(~mask, -1e9)",
        f"if mask is not None:\n        {a} = soft_hide({a}, mask)",
        f"{a} = {a}.masked_fill(torch.ones({a}.shape[-2:]).triu(1).bool(), float('-inf'))",
        f"at = torch.arange({a}.shape[-1])\n    {a} = {a}.masked_fill(at > at[:, None], -1e9)",
        f"{a} = {a} + torch.full({a}.shape[-2:], float('-inf')).triu(diagonal=1)",
        f"{a} = {a} + (1.0 - torch.ones({a}.shape[-2:]).tril()) * torch.finfo({a}.dtype).min",
        f"seen = torch.tril(torch.ones({a}.shape[-2:])) * mask\n    seen[:, 0] = 1\n"
        f"    {a} = {a}.masked_fill(seen == 0, -math.inf)",
    ]
    if r.random() < 0.7:
        lines.append(r.choice(masks))
    if r.random() < 0.15 and not folded:
        lines += [f"shape = {a}.shape", f"{a} = {a}.view(-1, *shape[2:])", f"{a} = {a}.view(shape)"]
    soft = [f"{a}.softmax(-1)", f"F.softmax({a}, dim=-1)", f"torch.softmax({a}, dim={a}.ndim - 1)",
            f"nn.Softmax(dim=-1)({a})", f"{a}.float().softmax(dim=-1).to({v}.dtype)",
            f"F.softmax({a}, dim=-1, dtype=torch.float32).type_as({v})", f"soften({a})"]  # fmt: skip
    lines.append(f"{a} = {r.choice(soft)}")
    if r.random() < 0.4:
        lines.append(f"{a} = F.dropout({a}, p=0.2, training=False)")
    if decoy:
        lines.append(r.choice(DECOYS).format(a=a))
    if r.random() < 0.2:
        lines.append(f"{v} = {v} * 1.5")
    onwards = f"{spaced([*named, i, j])}, {spaced([*named, j, d])} -> {spaced([*named, i, d])}"
    lasts = [f"{a} @ {v}", f"torch.matmul({a}, {v})", f"{a}.matmul({v})",
             f"torch.einsum('{onwards}', {a}, {v})"]  # fmt: skip
    if folded:
        lasts.append(f"torch.bmm({a}, {v})")
    last = r.choice(lasts)
    lines.append(
        r.choice([f"return {last}", f"out = {last}\n    return out", f"return ({last}) * 1.0"])
    )
    helpers = (
        "LAST = {}\n\ndef soft_hide(x, mask):\n    hidden = mask.logical_not()\n"
        "    return x.masked_fill(hidden, -1e9)\n\ndef soften(x):\n    return F.softmax(x, dim=-1)\n\n"
    )
    body = "".join(f"    {line}\n" for line in lines)
    source = f"{HEAD}{helpers}def attend({q}, {k}, {v}, mask, bias):\n{body}"
    return Variant(source, folded, decoy)
