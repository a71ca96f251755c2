"""Find the files of a model's weights, without torch."""

from __future__ import annotations

from pathlib import Path

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import read_json

_INDEX = "model.safetensors.index.json"
GGUF = (
    "is in the format GGUF, whose weights are rounded in formats of llama.cpp's own, which are not "
    "read. Use the model's original .safetensors"
)
"""Why a GGUF file is refused."""


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder.

    Raises:
        ModelRefused: There are none of a supported format, or one is missing.
    """
    if not folder.is_dir():
        raise ModelRefused(f"there is no folder {folder}. Name the folder of a model")
    if (folder / _INDEX).is_file():
        names = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelRefused(f"{folder / _INDEX} has no weight_map. Download it again")
        files = []
        for name in sorted({str(value) for value in names.values()}):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise ModelRefused(f"{folder / _INDEX} names the file {name!r:.80}")
            files.append(folder / name)
    else:
        files = sorted(folder.glob("*.safetensors"))
    if missing := [file for file in files if not file.is_file()]:
        raise ModelRefused(f"{missing[0]} is missing. Download the model again")
    if files:
        return files
    if any(folder.glob("*.gguf")):
        raise ModelRefused(f"{folder.name} {GGUF}")
    raise ModelRefused(f"there are no .safetensors files in {folder}")
