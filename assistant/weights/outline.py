"""A tensor without its values: what a file's header tells. It answers what is asked of tensors to name and check them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar


class Shaped(Protocol):
    """What naming and checking need of a tensor: torch's, or an outline."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Self: ...  # noqa: N802
    def dim(self) -> int: ...
    def numel(self) -> int: ...
    def flatten(self) -> Self: ...
    def is_floating_point(self) -> bool: ...
    def __getitem__(self, index: Any, /) -> Self: ...


S = TypeVar("S", bound=Shaped)


@dataclass(frozen=True)
class Outline:
    """Shape and dtype, as the header of a .safetensors file names it: F32, BF16, ..."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def T(self) -> Outline:  # noqa: N802
        return Outline(self.shape[::-1], self.dtype)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def flatten(self) -> Outline:
        return Outline((self.numel(),), self.dtype)

    def is_floating_point(self) -> bool:
        return self.dtype.startswith(("F", "BF"))

    def __getitem__(self, index: int) -> Outline:
        return Outline(self.shape[1:], self.dtype)
