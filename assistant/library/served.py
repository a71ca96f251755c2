"""Describe a language model that the serving engine runs, without loading it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights.header import read_header
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import RECURRENT, read_config, read_json
from gpudeck.accel.serving.files import refuse_gguf, weight_files
from gpudeck.accel.serving.memory import Footprint, footprint
from gpudeck.language.text import message_of, phrase
from gpudeck.scheduler.protocol.errors import UserError


class Described(msgspec.Struct, frozen=True):
    """Describe a model of one of the served families."""

    family: str
    parameters: int
    layers: int
    channels: int
    vocabulary: int
    dtype: str
    chats: bool
    """It has a template for chats."""
    footprint: Footprint


def is_served(folder: Path) -> bool:
    """Return True if a folder's config.json names another kind of model than RWKV-7.

    Raises:
        ModelRefused: It cannot be read, or the weights are a GGUF.
    """
    if folder.suffix == ".gguf" or (
        folder.is_dir() and any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors"))
    ):
        raise ModelRefused(refuse_gguf(folder.name))
    if not (folder / "config.json").is_file():
        return False
    return bool(read_json(folder / "config.json").get("model_type", RECURRENT) != RECURRENT)


def check_served(folder: Path) -> None:
    """Raise ModelRefused if the config.json in a folder names a model that cannot be served."""
    read_config(folder)


def require_served(folder: Path) -> None:
    """Raise UserError if a folder has no model that can be served; its weights are not read."""
    try:
        if is_served(folder):
            describe_served(folder)
        elif not folder.is_dir():
            raise ModelRefused(
                phrase(
                    "there is no folder {folder}. Name the folder of a model", folder=str(folder)
                )
            )
        elif not (folder / "config.json").is_file():
            raise ModelRefused(
                phrase(
                    "there is no config.json in {folder}. Name the folder of a model",
                    folder=str(folder),
                )
            )
    except (ModelRefused, ModelError, OSError) as e:
        raise UserError(message_of(e)) from e


def describe_served(folder: Path) -> Described:
    """Describe the model in a folder. Raises ModelRefused, ModelError or OSError."""
    config = read_config(folder)
    headers = [read_header(file) for file in weight_files(folder)]
    if not (folder / "tokenizer.json").is_file():
        raise ModelRefused(
            phrase("there is no tokenizer.json in {folder}. Download it again", folder=str(folder))
        )
    types = sorted({outline.dtype for header in headers for outline in header.values()})
    return Described(
        config.family.name,
        config.parameters,
        config.layers,
        config.hidden,
        config.vocabulary,
        ", ".join(types),
        _has_template(folder),
        footprint(folder, config),
    )


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    about = folder / "tokenizer_config.json"
    return about.is_file() and bool(read_json(about).get("chat_template"))
