"""Find the weight files of a model, and check what its config.json says, without torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.accel.rwkv.errors import ModelError, ModelNotFoundError
from gpudeck.language.text import phrase

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"
_FOREIGN = ("head_size", "lora_rank_decay")
"""Keys of config.json that only other dialects of RWKV-7 have."""


def files_of(source: Path) -> list[Path]:
    """Return the weight files at `source`, a folder, a .safetensors or a .pth file.

    Raises:
        ModelNotFoundError: There is no model.
        ModelError: The model cannot be used.
    """
    if source.is_dir():
        check_config(source)
    if source.is_file():
        if source.suffix not in (".pth", ".safetensors"):
            raise ModelError(
                phrase(
                    "{file} is neither .pth nor .safetensors. Name a folder with "
                    "model.safetensors, or a .pth file.",
                    file=str(source),
                )
            )
        return [source]
    if not source.is_dir():
        raise ModelNotFoundError(
            phrase(
                "there is no model at {file}. Name a folder with an RWKV-7 model, or a .pth file.",
                file=str(source),
            )
        )
    if shards := _shards(source):
        return shards
    if (source / _WHOLE).is_file():
        return [_confined(source, _WHOLE)]
    for suffix in (".safetensors", ".pth"):
        found = sorted(file for file in source.iterdir() if file.suffix == suffix)
        if len(found) > 1:
            raise ModelError(
                phrase(
                    "{file} holds {n} {suffix} files and no {index}. Name the one to use.",
                    file=str(source),
                    n=len(found),
                    suffix=suffix,
                    index=_INDEX,
                )
            )
        if found:
            return [_confined(source, found[0].name)]
    raise ModelNotFoundError(
        phrase(
            "no weights in {file}: it needs model.safetensors, {index} with its "
            "shards, or a .pth file.",
            file=str(source),
            index=_INDEX,
        )
    )


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def shards_of(folder: Path) -> list[Path]:
    """Return the shards that the folder's index names, even missing ones; none without an index.

    Raises:
        ModelError: The index cannot be read.
    """
    if not (folder / _INDEX).is_file():
        return []
    try:
        index = msgspec.json.decode(_confined(folder, _INDEX).read_bytes(), type=_Index)
    except (msgspec.MsgspecError, OSError) as e:
        raise ModelError(
            phrase(
                "cannot read {file}: {problem}. Download it again.",
                file=str(folder / _INDEX),
                problem=str(e),
            )
        ) from e
    return [_confined(folder, name) for name in sorted(set(index.weight_map.values()))]


def _shards(folder: Path) -> list[Path]:
    """Return the shards that make up the model.

    There are none without an index, or if the model is also in one file and the index is older or
    its shards are incomplete.
    """
    whole, index = folder / _WHOLE, folder / _INDEX
    if whole.is_file() and index.is_file() and whole.stat().st_mtime_ns > index.stat().st_mtime_ns:
        return []
    shards = shards_of(folder)
    if whole.is_file() and not all(shard.is_file() for shard in shards):
        return []
    for shard in shards:
        if shard.suffix != ".safetensors":
            raise ModelError(
                phrase(
                    "{file} names {name}, which is not a .safetensors file. Download the "
                    "model again.",
                    file=str(folder / _INDEX),
                    name=shard.name,
                )
            )
        if not shard.is_file():
            raise ModelError(
                phrase(
                    "the shard {name} is missing in {folder}. Download it again.",
                    name=shard.name,
                    folder=str(folder),
                )
            )
    return shards


def _confined(folder: Path, name: str) -> Path:
    """Return the file `name` of `folder`, and refuse one that leads out of it.

    Snapshots of the Hugging Face cache may link to its blobs.
    """
    root = folder.resolve()
    if root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--"):
        root = root.parent.parent
    file = folder / name
    if not name or Path(name).name != name or not file.resolve().is_relative_to(root):
        raise ModelError(
            phrase(
                "{folder} names the file {name}, which lies outside of it and was not "
                "opened. Put the file itself there.",
                folder=str(folder),
                name=repr(name),
            )
        )
    return file


def check_config(folder: Path) -> None:
    """Raise ModelError for other architectures and dialects, by name.

    A folder without config.json is judged by its tensors.
    """
    if not (folder / "config.json").is_file():
        return
    try:
        config = msgspec.json.decode(
            _confined(folder, "config.json").read_bytes(), type=dict[str, object]
        )
    except (msgspec.MsgspecError, OSError) as e:
        raise ModelError(
            phrase(
                "cannot read {file}: {problem}. Download it again.",
                file=str(folder / "config.json"),
                problem=str(e),
            )
        ) from e
    kind = config.get("model_type", "rwkv7")
    if kind != "rwkv7":
        raise ModelError(
            phrase(
                "{folder} holds a model of type {kind}; only RWKV-7 (type 'rwkv7') can be used.",
                folder=str(folder),
                kind=repr(kind),
            )
        )
    for key in _FOREIGN:
        if key in config:
            raise ModelError(
                phrase(
                    "{folder} is in a dialect of RWKV-7 (`{name}` in config.json); convert "
                    "it to flash-linear-attention's.",
                    folder=str(folder),
                    name=key,
                )
            )
