"""Offer FlexAttention's call, by our kernels where they compute what its functions say.

A mask is recognised by all of its pairs (`visibility`), a score function by its graph (`mods`). A
mask that is neither causal, a window nor documents runs as a block mask; a score function that is
not recognised is FlexAttention's, which then gets the whole call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask

from gpudeck.accel.attention import visibility
from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.block_masks import forget, lists_of
from gpudeck.accel.attention.dispatch import Choice
from gpudeck.accel.attention.inputs import A_BLOCK_MASK
from gpudeck.accel.attention.mods import ScoreRule, recognise_scores
from gpudeck.accel.attention.problem import default_scale
from gpudeck.accel.attention.visibility import Visible
from gpudeck.accel.runtime.given import require_tensors
from gpudeck.accel.runtime.refusals import NAMED
from gpudeck.language.text import Message, join_texts, message_of, phrase

FLEX = "flex"
"""The name in a Choice of FlexAttention itself."""
_LARGEST_HEAD = 512
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_Sizes = tuple[int, int, int, int]
_plain: Any = flex.flex_attention  # the overloads of both are narrower than what is passed on
_ours: Any = attention


@dataclass(frozen=True)
class Recognised:
    """Describe a call as `accel.attention.attention` takes it."""

    options: dict[str, Any]
    words: str
    """What was recognised, for the reason of the Choice."""


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
    backend: str = "auto",
    return_choice: bool = False,
) -> Any:
    """Compute torch.nn.attention.flex_attention.flex_attention, faster where that is possible.

    The arguments and results are FlexAttention's; shapes are [B,H,S,D]. Functions are read at their
    first use with a shape: tensors and numbers that they capture must not change afterwards, except
    those that are variables of an enclosing function, which are compared.

    Args:
        kernel_options: anything but None passes the call on to FlexAttention.
        return_aux: what else to return; our kernels return lse, also with return_lse.
        backend: `auto`, a name in BACKENDS, or `flex` for FlexAttention itself.
        return_choice: also return the Choice, which names what ran (`flex`: FlexAttention) and
            says what was recognised.

    Within torch.compile the call is FlexAttention's, which compiles it into the program.

    Raises:
        ValueError: if a named backend cannot compute this, or both return_lse and return_choice are
            requested.
        TypeError: if the score function cannot be called or the mask is none.
    """
    with_lse = return_lse or (return_aux is not None and return_aux.lse)
    if torch.compiler.is_compiling():
        return _plain(
            query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse,
            kernel_options, return_aux=return_aux,
        )  # fmt: skip
    require_tensors(query=query, key=key, value=value)
    _check_functions(score_mod, block_mask)
    if with_lse and return_choice:
        raise ValueError("lse and return_choice cannot be had in one call")
    why: Message | None = _refuse(query, key, value, enable_gqa, kernel_options, return_aux)
    found = None
    if backend != FLEX and why is None:
        try:
            found = recognise(query, key, score_mod, block_mask, with_lse)
        except ValueError as e:  # the mask does not fit the kernels
            why = message_of(e)
        else:
            why = None if found else phrase("the score function is not recognised")
    if found is not None:
        scale = default_scale(query.shape[-1]) if scale is None else scale
        options = {**found.options, "scale": scale * found.options["scale"], "backend": backend}
        if return_choice:
            out, chosen = _ours(query, key, value, **options, return_choice=True)
            recognised = phrase("{what} recognised", what=found.words)
            reason = join_texts((recognised, chosen.reason))
            return out, Choice(chosen.backend, lambda: (reason, chosen.candidates))
        result = _ours(query, key, value, **options, return_lse=with_lse)
        return (result[0], AuxOutput(lse=result[1])) if with_lse and return_aux else result
    if backend not in ("auto", FLEX):
        raise ValueError(f"backend {backend} cannot do this: {why}; FlexAttention can (flex)")
    result = _flex(query.device.type)(
        query, key, value, score_mod, block_mask, scale, enable_gqa,
        kernel_options=kernel_options,
        return_aux=AuxRequest(lse=True) if return_lse and return_aux is None else return_aux,
    )  # fmt: skip
    if return_lse and return_aux is None:
        return result[0], result[1].lse
    reason = NAMED if backend == FLEX else phrase("auto: {sub}", sub=why or "")
    return (result, Choice(FLEX, lambda: (reason, ()))) if return_choice else result


def _check_functions(score_mod: object, block_mask: object) -> None:
    if score_mod is not None and not callable(score_mod):
        raise TypeError(
            "score_mod must be a function of (score, batch, head, query, key); got"
            f" {type(score_mod).__name__}"
        )
    if block_mask is not None and not isinstance(block_mask, BlockMask):
        raise TypeError(f"block_mask must be {A_BLOCK_MASK}; got {type(block_mask).__name__}")


def recognise(
    q: Tensor,
    k: Tensor,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    return_lse: bool = False,
) -> Recognised | None:
    """Return what a call computes, or None if its score function is not recognised.

    Raises:
        ValueError: if the mask does not fit the tensors or the kernels.
    """
    sizes = (*q.shape[:3], k.shape[2])
    rule = ScoreRule() if score_mod is None else _known_rule(score_mod, sizes, q.device)
    if rule is None:
        return None
    # ALiBi counts from the first query in FlexAttention, and from the last key here, which changes
    # nothing but lse.
    if rule.slopes is not None and q.shape[2] != k.shape[2] and return_lse:
        return None
    words = [f"softcap {rule.softcap:g}"] if rule.softcap else []
    words += ["ALiBi"] if rule.slopes is not None else []
    options: dict[str, Any] = {
        "scale": rule.factor, "softcap": rule.softcap, "alibi": rule.slopes
    }  # fmt: skip
    if block_mask is not None and not _sees_all(block_mask):
        visible = _known_mask(block_mask, sizes, q.device)
        if visible is None:
            options["block_mask"] = block_mask
            words.append("a block mask")
        else:
            options |= {"window": visible.window, "seqlens": visible.documents}
            words += ["documents"] if visible.documents is not None else []
            words += ["causal"] if visible.window == (None, 0) else []
            words += ["a window"] if visible.window not in ((None, 0), (None, None)) else []
    return Recognised(options, ", ".join(words) or "plain attention")


def _refuse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enable_gqa: bool,
    kernel_options: dict[str, Any] | None,
    return_aux: AuxRequest | None,
) -> str | None:
    """Return why a call is FlexAttention's own, or None."""
    if kernel_options is not None:
        return "kernel_options are given"
    if return_aux is not None and return_aux.max_scores:
        return "the largest scores are requested"
    if q.dim() != 4 or k.dim() != 4 or q.shape[0] != k.shape[0]:
        return "the keys are shared by the batches"
    if q.shape[1] != k.shape[1] and not enable_gqa:
        return "heads are shared without enable_gqa"
    if q.is_cuda and (max(q.shape[3], v.shape[3]) > _LARGEST_HEAD or q.dtype == torch.float64):
        return f"our kernels take heads of up to {_LARGEST_HEAD} in 16 or 32 bits"
    return None


def _sees_all(mask: BlockMask) -> bool:
    """Return True for the mask that FlexAttention makes where none is given."""
    return mask.mask_mod is flex.noop_mask and mask.kv_num_blocks.numel() == 1


_RULES: WeakKeyDictionary[ScoreMod, dict[object, ScoreRule | None]] = WeakKeyDictionary()
_MASKS: WeakKeyDictionary[BlockMask, dict[_Sizes, Visible | None]] = WeakKeyDictionary()


def _known_rule(mod: ScoreMod, sizes: _Sizes, device: torch.device) -> ScoreRule | None:
    known = _RULES.setdefault(mod, {})
    key = (sizes, device, _find_captured(mod))
    if key not in known:
        known.clear()  # what was captured before is not needed again
        known[key] = recognise_scores(mod, sizes, device)
    return known[key]


def _find_captured(mod: ScoreMod) -> tuple[object, ...]:
    """Return what tells values of the variables of enclosing functions apart."""
    values = [cell.cell_contents for cell in getattr(mod, "__closure__", None) or ()]
    return tuple(
        x if isinstance(x, int | float) else (id(x), _version(x) if isinstance(x, Tensor) else 0)
        for x in values
    )


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


def _known_mask(mask: BlockMask, sizes: _Sizes, device: torch.device) -> Visible | None:
    known = _MASKS.setdefault(mask, {})
    if sizes not in known:
        known[sizes] = visibility.recognise_mask(lists_of(mask, sizes, device))
        if known[sizes] is not None:
            forget(mask)  # other kernels run, which need no lists
    return known[sizes]


@lru_cache(maxsize=2)
def _flex(device: str) -> Any:
    """Return FlexAttention: compiled on a GPU, where it is slow and large otherwise."""
    return torch.compile(flex.flex_attention) if device == "cuda" else flex.flex_attention
