"""Say which of our arguments stands for one that other attention functions have."""

from __future__ import annotations

from collections.abc import Iterable

_OURS = {
    "attn_mask": "use bias=, which takes the same masks, True where a key is visible",
    "is_causal": "use causal=, which aligns the last query with the last key",
    "dropout_p": "use dropout=, which must be 0",
    "enable_gqa": "k and v may have fewer heads than q without it",
    "softmax_scale": "use scale=",
    "sm_scale": "use scale=",
    "window_size": "use window=",
    "alibi_slopes": "use alibi=",
    "score_mod": "use accel.flex_attention, which has score_mod=",
    "return_softmax_lse": "use return_lse=",
}
"""Arguments of torch's scaled_dot_product_attention and flex_attention, and of flash-attn."""


def refuse_arguments(names: Iterable[str]) -> None:
    """Raise TypeError about the first of the arguments, which `attention` does not have."""
    for name in names:
        if name in _OURS:
            raise TypeError(f"attention() has no argument {name}: {_OURS[name]}")
        raise TypeError(f"attention() got an unexpected keyword argument {name!r}")
