"""Turn the weights of a trained reader into the form that ships."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gpudeck.assistant.reader.encoder import BLOCK
from gpudeck.assistant.training.reader_network import CLASSIFIERS


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


def shipped(state: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of `reader.safetensors`: the layers in four bits, and the heads.

    The scaling of what goes into a head becomes a part of its weights.
    """
    weights = {name: array.detach().cpu().float().numpy() for name, array in state.items()}
    found: dict[str, npt.NDArray[np.generic]] = {}
    for name, array in weights.items():
        part, _, rest = name.partition(".")
        if part != "layers":
            continue
        layer, module, kind = rest.split(".")
        packed = pack(array) if array.ndim == 2 else array
        found[f"t{layer}.{module}.{'b' if kind == 'bias' else 'w'}"] = packed
    for name in CLASSIFIERS:
        weight = weights[f"{name}.weight"] / weights["spread"]
        found[f"{name}.w"] = np.ascontiguousarray(weight.T.astype(np.float16))
        found[f"{name}.b"] = weights[f"{name}.bias"] - weight @ weights["mean"]
    found["tag.w"] = np.ascontiguousarray(weights["tag.weight"].T.astype(np.float16))
    found["tag.b"] = weights["tag.bias"]
    return found
