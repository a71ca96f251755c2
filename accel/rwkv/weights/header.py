"""Read what a model's files contain, without loading it and without torch.

A .safetensors file begins with 8 bytes, the length of the JSON header that follows with dtype,
shape and place of each tensor (https://huggingface.co/docs/safetensors). A .pth file is a zip
archive of a pickle and a file for each storage; the pickle's opcodes are read, never run.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path

import msgspec

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights.shapes import Outline
from gpudeck.language.text import phrase

_LONGEST = 100 * 2**20
"""Bytes of the longest header that is read; the format allows no more."""
_STORAGES = {
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "DoubleStorage": ("F64", 8),
}


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_header(file: Path) -> dict[str, Outline]:
    """Return the tensors in a .safetensors file. Raises ModelError if it is truncated
    or damaged.
    """
    try:
        with file.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if not 0 < length <= _LONGEST:
                raise ValueError("its header has no length that could be one")
            raw = msgspec.json.decode(f.read(length), type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
        if (
            8 + length + max((entry.data_offsets[1] for entry in entries.values()), default=0)
            != file.stat().st_size
        ):
            raise ValueError("its size is not what its header says")
    except (ValueError, RecursionError, OSError) as e:
        raise ModelError(
            phrase(
                "{file} is truncated or damaged ({problem}). Download it again.",
                file=str(file),
                problem=str(e),
            )
        ) from e
    return {name: Outline(entry.shape, entry.dtype) for name, entry in entries.items()}


class Pth(msgspec.Struct, frozen=True):
    """Describe a .pth file without loading it; only loading reveals the shapes of its tensors."""

    parameters: int
    layers: int
    dtype: str


def read_pth(file: Path) -> Pth:
    """Return the description of a .pth file.

    Raises:
        ModelError: It is not one of torch's zip files with a single floating-point type.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            pickled = next(info for info in infos if info.filename.endswith("/data.pkl"))
            if pickled.file_size > _LONGEST:
                raise ValueError("its list of tensors is too long")
            said = [
                str(arg)
                for _, arg, _ in pickletools.genops(archive.read(pickled))
                if isinstance(arg, str)
            ]
    except (StopIteration, zipfile.BadZipFile, OSError, ValueError, RecursionError) as e:
        raise ModelError(
            phrase(
                "{file} is not a readable .pth file ({problem}). Get the model as .safetensors.",
                file=str(file),
                problem=str(e) or phrase("it lists no tensors"),
            )
        ) from e
    kinds = {kind for name in said for word, kind in _STORAGES.items() if name.endswith(word)}
    if len(kinds) != 1:
        raise ModelError(
            phrase(
                "{file} holds numbers of several types. Get the model as .safetensors.",
                file=str(file),
            )
        )
    ((dtype, size),) = kinds
    stored = sum(info.file_size for info in infos if re.search(r"/data/\d+$", info.filename))
    layers = 1 + max(
        (int(found[1]) for name in said if (found := re.match(r"blocks\.(\d{1,4})\.", name))),
        default=-1,
    )
    return Pth(stored // size, layers, dtype)
