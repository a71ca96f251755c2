"""Load RWKV-7 weights in one canonical form: BlinkDL's names and shapes, one-dimensional tensors
squeezed.

It reads `.safetensors` (one file, or shards named by an index; flash-linear-attention's names or
BlinkDL's) and BlinkDL's `.pth` (tensors only). Everything else raises a ModelError of one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.accel.rwkv.weights.names import canonical
from gpudeck.accel.rwkv.weights.shapes import HEAD, MIXES, checked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HEAD", "MIXES", "load"]


def load(path: str | Path) -> dict[str, Tensor]:
    """Load the weights in a folder, a .safetensors or a .pth file, on the CPU, in the stored dtype.

    Returns:
        The tensors by their canonical names.

    Raises:
        ModelNotFoundError: There is no model.
        ModelError: The model cannot be used.
    """
    # This imports torch, which is not needed to describe a model.
    from gpudeck.accel.rwkv.weights import read

    source = Path(path).expanduser().absolute()
    return checked(canonical(read.read(source)), source)
