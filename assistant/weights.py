"""RWKV-7 weights from disk, in one canonical form: BlinkDL's names and shapes, one-dimensional tensors squeezed.

Read are `.safetensors` (one file, or shards named by an index; flash-linear-attention's names or BlinkDL's) and BlinkDL's
`.pth` (tensors only: a file that holds code is refused, not run). Everything that cannot be used is a UserError of one line.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from scheduler.errors import NotFound, UserError

HEAD = 64
"""Channels a head, in every RWKV-7 model."""
MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")
"""Token-shift coefficients, in the order of the older fused `x_x`."""

_INDEX = "model.safetensors.index.json"
_FOREIGN = ("head_size", "lora_rank_decay")
"""Keys of config.json that only other dialects of RWKV-7 have."""

_TOP = {
    "emb.weight": "V C",
    "head.weight": "V C",
    "ln_out.weight": "C",
    "ln_out.bias": "C",
    "blocks.0.ln0.weight": "C",
    "blocks.0.ln0.bias": "C",
}
_LAYER = (
    {f"{norm}.{part}": "C" for norm in ("ln1", "ln2", "att.ln_x") for part in ("weight", "bias")}
    | {f"att.{mix}": "C" for mix in MIXES}
    | {f"att.{vector}": "C" for vector in ("w0", "a0", "v0", "k_k", "k_a")}
    | {f"att.{lora}1": f"C {lora}" for lora in "wavg"}
    | {f"att.{lora}2": f"{lora} C" for lora in "wavg"}
    | {f"att.{matrix}.weight": "C C" for matrix in ("receptance", "key", "value", "output")}
    | {"att.r_k": "H 64", "ffn.x_k": "C", "ffn.key.weight": "F C", "ffn.value.weight": "C F"}
)
"""Shape of every tensor of a layer. C channels, H = C / 64 heads, V tokens; ranks w, a, v, g and width F are whatever they are."""
_UNUSED = {"blocks.0.att.v0", "blocks.0.att.v1", "blocks.0.att.v2"}
"""The first layer makes the value residual, it does not use it: some files have these, and they do nothing."""

_HF_TOP = {"model.embeddings": "emb", "model.norm": "ln_out", "lm_head": "head"}
_HF_NORM = {"pre_norm": "ln0", "attn_norm": "ln1", "ffn_norm": "ln2"}
_HF_ATT = {"r_proj": "receptance", "k_proj": "key", "v_proj": "value", "o_proj": "output", "g_norm": "ln_x"}
_HF_LORA = {"2.bias": "0", "0.weight": "1", "2.weight": "2"}


def load(path: str | Path) -> dict[str, Tensor]:
    """The weights in `path`, a folder, a .safetensors or a .pth file: canonical name to tensor, on the CPU, in the stored dtype.

    Raises NotFound where nothing is there, UserError where what is there cannot be used.
    """
    source = Path(path).expanduser().absolute()
    if source.is_dir():
        _check_config(source)
    files = _files(source)
    raw: dict[str, Tensor] = {}
    for file in files:
        raw |= _read_pth(file) if file.suffix == ".pth" else _read_safetensors(file)
    return _checked(_canonical(raw), source)


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


def _canonical(raw: dict[str, Tensor]) -> dict[str, Tensor]:
    """Canonical names and layouts; what has no canonical name keeps its own, and is refused later."""
    renamed: dict[str, Tensor] = {}
    for key, tensor in raw.items():
        name, transposed = _rename(key)
        if name.endswith("att.x_x"):
            renamed |= _unfused(name, tensor)
        elif name not in _UNUSED:
            renamed[name] = tensor.T if transposed and tensor.dim() == 2 else tensor
    return renamed


def _unfused(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if tensor.shape[:1] != (len(MIXES),):
        raise UserError(f"{name} has shape {list(tensor.shape)}, expected [{len(MIXES)}, channels].")
    return {name.removesuffix("x_x") + mix: tensor[i] for i, mix in enumerate(MIXES)}


def _rename(key: str) -> tuple[str, bool]:
    """BlinkDL's name for flash-linear-attention's `key`, and whether the tensor is stored transposed."""
    stem, _, last = key.rpartition(".")
    if stem in _HF_TOP:
        return f"{_HF_TOP[stem]}.{last}", False
    if not (layer := re.fullmatch(r"model\.layers\.(\d+)\.(\w+)\.(.+)", key)):
        return key, False
    block, part, rest = f"blocks.{layer[1]}", layer[2], layer[3]
    if part in _HF_NORM:
        return f"{block}.{_HF_NORM[part]}.{rest}", False
    if part != "attn":
        return f"{block}.{part}.{rest}", False
    if (lora := re.fullmatch(r"([wavg])_lora\.lora\.(.+)", rest)) and lora[2] in _HF_LORA:
        return f"{block}.att.{lora[1]}{_HF_LORA[lora[2]]}", lora[2] != "2.bias"
    head, dot, tail = rest.partition(".")
    return f"{block}.att.{_HF_ATT.get(head, head)}{dot}{tail}", False


def _checked(tensors: dict[str, Tensor], source: Path) -> dict[str, Tensor]:
    """All tensors of an RWKV-7 and no others, each of its shape, vectors squeezed."""
    if older := next((name for name in tensors if ".time_" in name), None):
        raise UserError(f"{source} holds an older RWKV (it has {older}); only RWKV-7 can be used.")
    sizes: dict[str, int] = {"64": HEAD}
    checked: dict[str, Tensor] = {}
    for name, shape in _expected(tensors):
        # Ranks and widths may differ from layer to layer.
        known = sizes if name in _TOP else {dim: sizes[dim] for dim in ("64", "V", "C", "H")}
        if name not in tensors:
            raise UserError(f"{source} lacks the tensor {name}. The download is incomplete, or this is not an RWKV-7.")
        checked[name] = _shaped(name, tensors[name], shape.split(), known, source)
        if name == "emb.weight":
            _split_heads(sizes, source)
    _check_ranks(checked, source)
    if extra := sorted(set(tensors) - set(checked)):
        raise UserError(
            f"{source} has tensors RWKV-7 does not ({extra[0]}{', ...' if len(extra) > 1 else ''}): another dialect, it cannot be used."
        )
    return checked


def _expected(tensors: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    layers = 1 + max((int(m[1]) for name in tensors if (m := re.match(r"blocks\.(\d{1,4})\.", name))), default=0)
    yield from _TOP.items()
    for i in range(layers):
        yield from ((name, shape) for part, shape in _LAYER.items() if (name := f"blocks.{i}.{part}") not in _UNUSED)


def _split_heads(sizes: dict[str, int], source: Path) -> None:
    if sizes["C"] % HEAD:
        raise UserError(f"{source} has {sizes['C']} channels, not a multiple of {HEAD} (the head size of RWKV-7); it cannot be used.")
    sizes["H"] = sizes["C"] // HEAD


def _shaped(name: str, tensor: Tensor, shape: list[str], sizes: dict[str, int], source: Path) -> Tensor:
    given = list(tensor.shape)
    if len(shape) == 1:
        tensor = tensor.flatten() if tensor.numel() == max(given, default=0) else tensor
    if not tensor.is_floating_point():
        raise UserError(f"{name} in {source} has dtype {tensor.dtype}, expected a floating-point type.")
    expected = [sizes.get(dim) for dim in shape]
    if tensor.dim() != len(shape) or any(n < 1 or n != (known or n) for n, known in zip(tensor.shape, expected, strict=True)):
        raise UserError(f"{name} in {source} has shape {given}, expected [{', '.join(str(n or 'any') for n in expected)}].")
    sizes |= zip(shape, tensor.shape, strict=True)
    return tensor


def _check_ranks(tensors: dict[str, Tensor], source: Path) -> None:
    """The two halves of each low-rank pair must meet."""
    for name, first in tensors.items():
        if match := re.fullmatch(r"(blocks\.\d+\.(?:att\.[wavg]|ffn\.))(1|key\.weight)", name):
            other = match[1] + ("2" if match[2] == "1" else "value.weight")
            wanted = [first.shape[1], first.shape[0]]
            if list(tensors[other].shape) != wanted:
                raise UserError(f"{other} in {source} has shape {list(tensors[other].shape)}, expected {wanted}.")
