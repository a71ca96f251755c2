"""Read the tensors of a model's folder: .safetensors, one file or shards, quantized or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gpudeck.accel.primitives.quantize.int4 import from_awq, from_gptq
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import Config
from gpudeck.accel.serving.files import weight_files
from gpudeck.accel.serving.linear import FP8_BLOCK, Linear, of_int4
from gpudeck.language.text import phrase

_STORED = (torch.float32, torch.float16, torch.bfloat16)


class Checkpoint:
    """Give the tensors of a folder by their names, each checked against the shape it must have."""

    def __init__(self, folder: Path, config: Config) -> None:
        """Read the headers of all files.

        Raises:
            ModelRefused: There are no weights, or they are damaged or of an unknown layout.
        """
        self._folder = folder
        self._quantization = _quantization(config.quantization)
        self._files: dict[Path, Any] = {}
        self._where: dict[str, tuple[Path, str]] = {}
        for file in weight_files(folder):
            with _errors(file):
                opened: Any = safe_open(file, framework="pt")
                self._files[file] = opened
                # as models that also read pictures name the tensors of their model of texts
                for name in opened.keys():  # noqa: SIM118  it is no dictionary
                    plain = name.replace("model.language_model.", "model.", 1)
                    self._where[plain] = file, name
        self.read_bytes = 0
        """The bytes of all tensors that were read so far."""

    def __contains__(self, name: str) -> bool:
        """Return True if the folder has a tensor of this name."""
        return name in self._where

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in floating point. Raises ModelRefused."""
        found = self._raw(name)
        if found.dtype not in _STORED:
            raise ModelRefused(
                phrase(
                    "{name} in {folder} is of the type {dtype}",
                    name=name,
                    folder=str(self._folder),
                    dtype=str(found.dtype),
                )
            )
        return _checked(name, found, shape)

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        """Return the matrix [rows, columns] called `name`.weight, with its bias if it has one.

        Raises:
            ModelRefused: It is missing, or has another shape or layout.
        """
        bias = self.tensor(f"{name}.bias", rows) if f"{name}.bias" in self else None
        if f"{name}.qweight" in self:
            found = self._packed(name, rows, columns)
        elif f"{name}.weight_scale_inv" in self:
            found = self._fp8(name, rows, columns)
        else:
            found = Linear("dense", self.tensor(f"{name}.weight", rows, columns))
        return Linear(found.format, found.values, found.scales, found.zeros, bias)

    def _fp8(self, name: str, rows: int, columns: int) -> Linear:
        values = _checked(f"{name}.weight", self._raw(f"{name}.weight"), (rows, columns))
        if values.dtype != torch.float8_e4m3fn or self._quantization != "fp8":
            raise ModelRefused(
                phrase(
                    "{name}.weight is {dtype} with FP8 scales", name=name, dtype=str(values.dtype)
                )
            )
        blocks = (-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
        scales = self.tensor(f"{name}.weight_scale_inv", *blocks)
        return Linear("fp8", values, scales.float())

    def _packed(self, name: str, rows: int, columns: int) -> Linear:
        """Return a matrix in the layout of GPTQ or AWQ: words of eight int4, scales a group."""
        words, zeros = self._raw(f"{name}.qweight"), self._raw(f"{name}.qzeros")
        scales = self._raw(f"{name}.scales")
        groups = scales.shape[0] if scales.dim() == 2 else 0
        if not groups or columns % groups or (columns // groups) % 2:
            raise ModelRefused(
                phrase(
                    "{name}.scales has the shape {shape}", name=name, shape=str(list(scales.shape))
                )
            )
        _checked(f"{name}.scales", scales, (groups, rows))
        _checked(f"{name}.qzeros", zeros, (groups, rows // 8))
        if self._quantization == "awq":
            _checked(f"{name}.qweight", words, (columns, rows // 8))
            return of_int4(from_awq(words, zeros, scales).regroup())
        _checked(f"{name}.qweight", words, (columns // 8, rows))
        self._check_order(name, columns, groups)
        return of_int4(from_gptq(words, zeros, scales).regroup())

    def _check_order(self, name: str, columns: int, groups: int) -> None:
        if f"{name}.g_idx" not in self:
            return
        order = self._raw(f"{name}.g_idx").long()
        if not torch.equal(order, torch.arange(columns) // (columns // groups)):
            raise ModelRefused(
                phrase(
                    "{name} is quantized by GPTQ with desc_act, which scatters the groups "
                    "and is not supported. Use a model without it",
                    name=self._folder.name,
                )
            )

    def _raw(self, name: str) -> Tensor:
        if name not in self._where:
            raise ModelRefused(
                phrase(
                    "{folder} has no tensor {name}: it is incomplete or not of the family "
                    "that config.json says. Download it again",
                    folder=str(self._folder),
                    name=name,
                )
            )
        file, stored = self._where[name]
        with _errors(file):
            found: Tensor = self._files[file].get_tensor(stored)
        self.read_bytes += found.nbytes
        return found


def _quantization(given: Mapping[str, Any]) -> str:
    """Return the layout of quantized weights: gptq, awq, fp8, or nothing."""
    if not given:
        return ""
    method = given.get("quant_method")
    if method in ("gptq", "awq") and given.get("bits") == 4:
        if method == "awq" and str(given.get("version", "gemm")).lower() != "gemm":
            raise ModelRefused(
                phrase(
                    "AWQ's layout {value} is not supported", value=f"{given.get('version')!r:.20}"
                )
            )
        return str(method)
    if method == "fp8" and list(given.get("weight_block_size") or ()) == [FP8_BLOCK] * 2:
        return "fp8"
    raise ModelRefused(
        phrase(
            "weights quantized by {method} ({value} bits) are not supported. "
            "Supported: GPTQ and AWQ with 4 bits, and FP8 in blocks of 128",
            method=f"{method!r:.40}",
            value=given.get("bits", "?"),
        )
    )


def _checked(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise ModelRefused(
            phrase(
                "{name} has the shape {shape}, but config.json means {other}",
                name=name,
                shape=str(list(tensor.shape)),
                other=str(list(shape)),
            )
        )
    return tensor


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as e:
        quote = str(e)[:200]
        raise ModelRefused(
            phrase("cannot read {file}: {quote}. Download it again", file=str(file), quote=quote)
        ) from e
