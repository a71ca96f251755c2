"""Where the weights are: the files of a model, found and read as they are. A file that holds code is refused, not run."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from scheduler.errors import NotFound, UserError

_INDEX = "model.safetensors.index.json"
_FOREIGN = ("head_size", "lora_rank_decay")
"""Keys of config.json that only other dialects of RWKV-7 have."""


def read(source: Path) -> dict[str, Tensor]:
    """All tensors in `source`, a folder, a .safetensors or a .pth file, by the names they have there, on the CPU.

    Raises NotFound where nothing is there, UserError for another architecture and for what cannot be read.
    """
    if source.is_dir():
        _check_config(source)
    raw: dict[str, Tensor] = {}
    for file in _files(source):
        raw |= _read_pth(file) if file.suffix == ".pth" else _read_safetensors(file)
    return raw


def _files(source: Path) -> list[Path]:
    if source.is_file():
        if source.suffix not in (".pth", ".safetensors"):
            raise UserError(f"{source} is neither .pth nor .safetensors. Name a folder with model.safetensors, or a .pth file.")
        return [source]
    if not source.is_dir():
        raise NotFound(f"there is no model at {source}. Set model_folder to a folder with an RWKV-7 model, or to a .pth file.")
    if (source / _INDEX).is_file():
        return _shards(source)
    for suffix in (".safetensors", ".pth"):
        found = sorted(file for file in source.iterdir() if file.suffix == suffix)
        if len(found) > 1:
            raise UserError(f"{source} holds {len(found)} {suffix} files and no {_INDEX}. Set model_folder to the one to use.")
        if found:
            return [_confined(source, found[0].name)]
    raise NotFound(f"no weights in {source}: it needs model.safetensors, {_INDEX} with its shards, or a .pth file.")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _shards(folder: Path) -> list[Path]:
    try:
        index = msgspec.json.decode(_confined(folder, _INDEX).read_bytes(), type=_Index)
    except (msgspec.MsgspecError, OSError) as e:
        raise UserError(f"cannot read {folder / _INDEX}: {e}. Download it again.") from e
    shards = [_confined(folder, name) for name in sorted(set(index.weight_map.values()))]
    for shard in shards:
        if shard.suffix != ".safetensors":
            raise UserError(f"{folder / _INDEX} names {shard.name}, which is not a .safetensors file. Download the model again.")
        if not shard.is_file():
            raise UserError(f"the shard {shard.name} is missing in {folder}. Download it again.")
    return shards


def _confined(folder: Path, name: str) -> Path:
    """The file `name` of `folder`; refused where it leads out of it. The Hugging Face cache links from its snapshots to its blobs."""
    root = folder.resolve()
    if root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--"):
        root = root.parent.parent
    file = folder / name
    if not name or Path(name).name != name or not file.resolve().is_relative_to(root):
        raise UserError(f"{folder} names the file {name!r}, which lies outside of it and was not opened. Put the file itself there.")
    return file


def _check_config(folder: Path) -> None:
    """Refuse other architectures and dialects by their name. A folder without config.json is judged by its tensors."""
    if not (folder / "config.json").is_file():
        return
    try:
        config = msgspec.json.decode(_confined(folder, "config.json").read_bytes(), type=dict[str, object])
    except (msgspec.MsgspecError, OSError) as e:
        raise UserError(f"cannot read {folder / 'config.json'}: {e}. Download it again.") from e
    kind = config.get("model_type", "rwkv7")
    if kind != "rwkv7":
        raise UserError(f"{folder} holds a model of type {kind!r}; only RWKV-7 (type 'rwkv7') can be used.")
    for key in _FOREIGN:
        if key in config:
            raise UserError(f"{folder} is in a dialect of RWKV-7 (`{key}` in config.json); convert it to flash-linear-attention's.")


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError) as e:
        raise UserError(f"{file} is truncated or damaged ({e}). Download it again.") from e


def _read_pth(file: Path) -> dict[str, Tensor]:
    try:
        with file.open("rb") as f:
            zipped = f.read(2) == b"PK"
        if zipped and not zipfile.is_zipfile(file):
            raise UserError(f"{file} is truncated. Download it again.")
        with warnings.catch_warnings(action="ignore"):  # of pickle protocols it might not read: it reads them or says so
            raw = torch.load(file, map_location="cpu", mmap=zipped, weights_only=True)
    except pickle.UnpicklingError as e:
        raise UserError(
            f"{file} holds Python code, which was not run, or is damaged: only plain tensors load. Get it as .safetensors."
        ) from e
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, ValueError) as e:
        raise UserError(f"{file} cannot be read ({_first_line(e)}). Download it again.") from e
    if not isinstance(raw, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in raw.items()):
        raise UserError(f"{file} is not a table of named tensors. Get the model's weights, not a training checkpoint.")
    return raw


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
