"""Write a trained reader in the form that ships.

    python -m gpudeck.assistant.training.export RUN/reader.pt... --out FOLDER

Several readers are written as their mean. FOLDER holds the encoder (`cut`). The trained layers are
written in eight bits, a scale each row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from gpudeck.assistant.reader.encoder import Encoder
from gpudeck.assistant.reader.reading import CLASSES, Classes
from gpudeck.assistant.retrieval.sections import vectors_of
from gpudeck.assistant.training.reader_network import FIXED, HEADS, MARKS, load

_HEADS = ("head", "second", "mark", "page")


def main() -> None:
    """Write the trained layers, the heads, and the vectors of the manual's sections."""
    parser = argparse.ArgumentParser(description="Write a trained reader.")
    parser.add_argument("reader", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    state = {name: array.numpy() for name, array in load(args.reader).items()}
    found: dict[str, npt.NDArray[np.generic]] = {}
    for name, array in state.items():
        part, _, rest = name.partition(".")
        layer, _, rest = rest.partition(".")
        if part != "layers" or int(layer) < FIXED:
            continue
        short = f"t{layer}.{rest.removesuffix('.weight').removesuffix('.bias')}"
        if name.endswith(".bias"):
            found[f"{short}.b"] = array
        elif array.ndim == 1:
            found[f"{short}.w"] = array
        else:
            scale = np.abs(array).max(axis=1) / 127
            found[f"{short}.w"] = np.round(array / scale[:, None]).astype(np.int8)
            found[f"{short}.w.scale"] = scale.astype(np.float32)
    for name in _HEADS:  # the scaling of what goes in becomes a part of the weights
        weight = state[f"{name}.weight"] / state["spread"]
        found[f"{name}.w"] = np.ascontiguousarray(weight.T)
        found[f"{name}.b"] = state[f"{name}.bias"] - weight @ state["mean"]
    found["tag.w"] = np.ascontiguousarray(state["tag.weight"].T)
    found["tag.b"] = state["tag.bias"]
    save_file(found, args.out / "reader.safetensors")
    (args.out / CLASSES).write_bytes(msgspec.json.encode(Classes(HEADS, MARKS)))
    vectors = vectors_of(Encoder.load(args.out).vector)
    np.savez(args.out / "sections.npz", keys=np.array(list(vectors)),
             vectors=np.array(list(vectors.values()), np.float16))  # fmt: skip


if __name__ == "__main__":
    main()
