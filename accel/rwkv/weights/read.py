"""Read the weights as they are in their files. A file that contains code is refused, not run."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights.find import files_of
from gpudeck.language.text import phrase


def read(source: Path) -> dict[str, Tensor]:
    """Return all tensors in a folder, a .safetensors or a .pth file, by their stored names, on the
    CPU.

    A folder that is replaced by another revision meanwhile is read again.

    Raises:
        ModelNotFoundError: There is no model.
        ModelError: It is of another architecture, or cannot be read.
    """
    while True:
        began = _inode(source)
        try:
            raw: dict[str, Tensor] = {}
            for file in files_of(source):
                raw |= _read_pth(file) if file.suffix == ".pth" else read_safetensors(file)
        except ModelError:
            if _inode(source) == began:
                raise
        else:
            if _inode(source) == began:
                return raw


def _inode(source: Path) -> int | None:
    """Return the number that distinguishes a folder from another one of its name."""
    return source.stat().st_ino if source.exists() else None


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """Return all tensors in a .safetensors file. Raises ModelError if it is damaged."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as e:
        raise ModelError(
            phrase(
                "{file} is truncated or damaged ({problem}). Download it again.",
                file=str(file),
                problem=str(e),
            )
        ) from e


def _read_pth(file: Path) -> dict[str, Tensor]:
    try:
        with file.open("rb") as f:
            zipped = f.read(2) == b"PK"
        if zipped and not zipfile.is_zipfile(file):
            raise ModelError(phrase("{file} is truncated. Download it again.", file=str(file)))
        with warnings.catch_warnings(
            action="ignore"
        ):  # torch warns about pickle protocols that it may not support; it reads them or raises.
            raw = torch.load(file, map_location="cpu", mmap=zipped, weights_only=True)
    except pickle.UnpicklingError as e:
        raise ModelError(
            phrase(
                "{file} contains Python code, which was not run, or is damaged: only "
                "plain tensors load. Get it as .safetensors.",
                file=str(file),
            )
        ) from e
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, ValueError) as e:
        raise ModelError(
            phrase(
                "{file} cannot be read ({problem}). Download it again.",
                file=str(file),
                problem=_first_line(e),
            )
        ) from e
    if not isinstance(raw, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in raw.items()
    ):
        raise ModelError(
            phrase(
                "{file} is not a table of named tensors. Get the model's weights, not a"
                " training checkpoint.",
                file=str(file),
            )
        )
    return raw


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
