"""Weights in four bits: blocks of 32 with a half-precision scale each (18 bytes)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK = 32
_BYTES = 18


def unpack(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return rows of weights: [N, C / 32 * 18] bytes -> [N, C]."""
    parts = blocks.reshape(len(blocks), -1, _BYTES)
    scales = parts[..., :2].copy().view(np.float16).astype(np.float32)
    packed = parts[..., 2:]
    both = np.concatenate((packed & 15, packed >> 4), axis=-1).astype(np.float32) - 8
    return (both * scales).reshape(len(blocks), -1)


def pack(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return rows of weights in four bits: [N, C] -> [N, C / 32 * 18] bytes."""
    parts = weights.reshape(len(weights), -1, BLOCK)
    peaks = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)
    scales = (peaks / -8).astype(np.float16)
    safe = np.where(scales == 0, 1, scales).astype(np.float32)
    whole = np.clip(np.round(parts / safe) + 8, 0, 15).astype(np.uint8)
    packed = whole[..., :16] | (whole[..., 16:] << 4)
    scale_bytes = scales.view(np.uint8).reshape(*scales.shape[:-1], 2)
    return np.concatenate((scale_bytes, packed), axis=-1).reshape(len(weights), -1)
