"""Describe a model and the memory it needs, from the headers of its files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudeck.accel.rwkv.errors import ModelError, ModelNotFoundError
from gpudeck.accel.rwkv.tokenizer import vocabulary_file
from gpudeck.accel.rwkv.weights.find import files_of
from gpudeck.accel.rwkv.weights.header import read_header, read_pth
from gpudeck.accel.rwkv.weights.names import canonical
from gpudeck.accel.rwkv.weights.shapes import HEAD, Outline, checked
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.memory import Footprint
from gpudeck.assistant.library.served import describe_served, is_served
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.progress import printable

BYTES = {"cpu": 4, "cuda": 2}
"""Bytes of a number by device: fp32 on a CPU, bf16 on a GPU (see `gpudeck.assistant.engine`)."""
LARGE, ABLE, JUDGES = 100_000_000, 400_000_000, 1_000_000_000
"""The numbers of parameters from which a model can chat, from which it reads requests and writes
texts, and from which it judges its own texts."""


class Model(msgspec.Struct, frozen=True):
    """Describe a model in a folder or file. Unknown values are 0 or empty."""

    path: str
    name: str
    bytes: int = 0
    """The size of its files."""
    parameters: int = 0
    layers: int = 0
    channels: int = 0
    vocabulary: int = 0
    dtype: str = ""
    """The type of its stored numbers."""
    dialect: str = ""
    """The naming convention of its tensors."""
    needs: dict[str, int] = {}
    """Bytes of memory for its weights and one state, by device: cpu, cuda. CUDA itself needs some
    more.
    """
    problem: Message = ""
    """Why it cannot be used; empty if it can."""
    family: str = ""
    """The family of a model that `gpudeck serve` runs; empty for RWKV-7, which the assistant uses.
    """
    chats: bool = False
    """A served model has a template for chats."""
    footprint: Footprint | None = None
    """What a served model takes."""

    @property
    def large(self) -> bool:
        """Return True if the model can chat as the assistant's own."""
        return self.parameters >= LARGE and not self.family

    @property
    def able(self) -> bool:
        """Return True if the model reads what the encoder cannot, and writes texts."""
        return self.parameters >= ABLE and not self.family and not self.problem


@contextmanager
def model_errors() -> Iterator[None]:
    """Turn the engine's errors into the assistant's: UserError or NotFound with the
    same message.
    """
    try:
        yield
    except ModelNotFoundError as e:
        raise NotFound(e.message) from e
    except (ModelError, ModelRefused) as e:
        raise UserError(e.message) from e


def name_of(path: str) -> str:
    """Return the name of the model at `path`, without characters that hide what it says."""
    file = Path(path)
    return printable(file.stem if path.endswith((".pth", ".safetensors")) else file.name)


def describe(path: str | Path) -> Model:
    """Describe the model at `path`. It never raises: `problem` says in one line why it cannot be
    used.
    """
    source = Path(path).expanduser().absolute()
    made = Model(str(source), name_of(str(source)))
    try:
        if is_served(source):
            return _from_served(made, source)
        files = files_of(source)
        made = msgspec.structs.replace(made, bytes=sum(file.stat().st_size for file in files))
        if files[0].suffix == ".pth":
            made = _from_pth(made, files[0])
        else:
            raw: dict[str, Outline] = {}
            for file in files:
                raw |= read_header(file)
            made = _from_outlines(made, raw, checked(canonical(raw), source))
        vocabulary_file(source)
    except (ModelError, ModelRefused) as e:
        return msgspec.structs.replace(made, problem=e.message)
    except OSError as e:
        problem = phrase(
            "{name} cannot be read: {problem}", name=str(source), problem=str(e.strerror)
        )
        return msgspec.structs.replace(made, problem=problem)
    return made


def _from_served(made: Model, source: Path) -> Model:
    found = describe_served(source)
    needs = {device: found.footprint.weight_bytes(device) for device in BYTES}
    return msgspec.structs.replace(
        made,
        bytes=found.footprint.stored,
        parameters=found.parameters,
        layers=found.layers,
        channels=found.channels,
        vocabulary=found.vocabulary,
        dtype=found.dtype,
        needs=needs,
        family=found.family,
        chats=found.chats,
        footprint=found.footprint,
    )


def _from_outlines(
    made: Model, raw: Mapping[str, Outline], tensors: Mapping[str, Outline]
) -> Model:
    vocabulary, channels = tensors["emb.weight"].shape
    layers = 1 + max(
        int(found[1]) for name in tensors if (found := re.match(r"blocks\.(\d+)\.", name))
    )
    parameters = sum(tensor.numel() for tensor in tensors.values())
    state = {device: layers * channels * (2 * size + 4 * HEAD) for device, size in BYTES.items()}
    return msgspec.structs.replace(
        made,
        parameters=parameters,
        layers=layers,
        channels=channels,
        vocabulary=vocabulary,
        dtype=", ".join(sorted({tensor.dtype for tensor in tensors.values()})),
        dialect="BlinkDL" if "emb.weight" in raw else "flash-linear-attention",
        needs={device: parameters * size + state[device] for device, size in BYTES.items()},
    )


def _from_pth(made: Model, file: Path) -> Model:
    found = read_pth(file)
    needs = {device: found.parameters * size for device, size in BYTES.items()}
    return msgspec.structs.replace(
        made,
        parameters=found.parameters,
        layers=found.layers,
        dtype=found.dtype,
        dialect="BlinkDL",
        needs=needs,
    )
