"""Find the files of a model's weights, without torch."""

from __future__ import annotations

from pathlib import Path

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import read_json
from gpudeck.language.text import Text, phrase

_INDEX = "model.safetensors.index.json"


def refuse_gguf(name: str) -> Text:
    """Return why a GGUF file of this name is refused."""
    return phrase(
        "{name} is in the format GGUF, whose weights are rounded in formats of llama.cpp's own, "
        "which are not read. Use the model's original .safetensors",
        name=name,
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder.

    Raises:
        ModelRefused: There are none of a supported format, or one is missing.
    """
    if not folder.is_dir():
        raise ModelRefused(
            phrase("there is no folder {folder}. Name the folder of a model", folder=str(folder))
        )
    if (folder / _INDEX).is_file():
        names = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelRefused(
                phrase("{file} has no weight_map. Download it again", file=str(folder / _INDEX))
            )
        files = []
        for name in sorted({str(value) for value in names.values()}):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise ModelRefused(
                    phrase(
                        "{file} names the file {name}",
                        file=str(folder / _INDEX),
                        name=f"{name!r:.80}",
                    )
                )
            files.append(folder / name)
    else:
        files = sorted(folder.glob("*.safetensors"))
    if missing := [file for file in files if not file.is_file()]:
        raise ModelRefused(
            phrase("{file} is missing. Download the model again", file=str(missing[0]))
        )
    if files:
        return files
    if any(folder.glob("*.gguf")):
        raise ModelRefused(refuse_gguf(folder.name))
    raise ModelRefused(phrase("there are no .safetensors files in {folder}", folder=str(folder)))
