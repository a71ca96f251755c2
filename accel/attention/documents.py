"""Attend within documents that lie end to end in the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gpudeck.accel.attention.ragged import Ragged


def attend_documents(
    attend: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]
) -> Any:
    """Run `attend` on the documents of `options["seqlens"]` in tensors with four dimensions.

    If all rows have the same documents, [B,H,S,D] becomes B x H heads of one row, and [B,S,H,D] one
    row with all documents B times (with ALiBi it is copied to the first form). If each row has its
    own, all rows become one, for which [B,H,S,D] is copied.

    Raises:
        ValueError: if the documents are neither those of one row nor of all.
    """
    ragged: Ragged = options["seqlens"]
    by_rows = options["layout"] == "bshd"
    batch, length = q.shape[0], q.shape[1 if by_rows else 2]
    keys = k.shape[1 if by_rows else 2]
    same = batch > 1 and (ragged.total_q, ragged.total_k) == (length, keys)
    if not same and (ragged.total_q, ragged.total_k) != (batch * length, batch * keys):
        rows = f", or those of all {batch} rows to {batch * length} and {batch * keys}"
        raise ValueError(
            f"the documents of a row must add up to {length} queries and {keys} keys"
            f"{rows if batch > 1 else ''}; got {ragged.total_q} and {ragged.total_k}"
        )
    options = {**options, "layout": "bhsd"}
    over_heads = same and (not by_rows or (options["alibi"] is not None))
    by_head = [x.transpose(1, 2) if by_rows else x for x in (q, k, v)]
    if over_heads:
        for name in ("sink", "alibi"):
            options[name] = _of_all_heads(options[name], batch)
        found = attend(*(x.flatten(0, 1).transpose(0, 1) for x in by_head), **options)
    else:
        options["seqlens"] = ragged.repeat(batch) if same else ragged
        found = attend(*(x.transpose(1, 2).flatten(0, 1) for x in by_head), **options)
    out = found[0] if isinstance(found, tuple) else found
    if over_heads:
        out = out.view(length, batch, -1, out.shape[2]).permute(1, 2, 0, 3)
    else:
        out = out.view(batch, length, -1, out.shape[2]).transpose(1, 2)
    out = out.transpose(1, 2) if by_rows else out
    if not isinstance(found, tuple):
        return out
    if options["return_choice"]:
        return out, found[1]
    lse = found[1].view(batch, -1, length) if over_heads else found[1].view(-1, batch, length)
    return out, lse if over_heads else lse.transpose(0, 1)


def _of_all_heads(x: Tensor | None, batch: int) -> Tensor | None:
    """Return numbers of the heads [H] or [B,H] for batch x heads."""
    return None if x is None else x.expand(batch, x.shape[-1]).flatten()
