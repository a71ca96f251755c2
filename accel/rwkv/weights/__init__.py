"""RWKV-7 weights from disk, in one canonical form: BlinkDL's names and shapes, one-dimensional tensors squeezed.

Read are `.safetensors` (one file, or shards named by an index; flash-linear-attention's names or BlinkDL's) and BlinkDL's
`.pth` (tensors only). Everything that cannot be used is a ModelError of one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accel.rwkv.weights.names import canonical
from accel.rwkv.weights.shapes import HEAD, MIXES, checked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HEAD", "MIXES", "load"]


def load(path: str | Path) -> dict[str, Tensor]:
    """The weights in `path`, a folder, a .safetensors or a .pth file: canonical name to tensor, on the CPU, in the stored dtype.

    Raises ModelNotFoundError where nothing is there, ModelError where what is there cannot be used.
    """
    from accel.rwkv.weights import read  # brings torch in: the outline of a model is had without it

    source = Path(path).expanduser().absolute()
    return checked(canonical(read.read(source)), source)
