"""Refuse arguments that are no tensors, or that there are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


def require_tensors(**given: object) -> None:
    """Raise TypeError, which names the first argument that is not a tensor, if there is one."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor; got {_kind(x)}")


def in_order(names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
    """Return the values of these names, None for those that are not given.

    Raises:
        TypeError: if another name is given.
    """
    if unknown := sorted(given.keys() - {*names}):
        raise TypeError(f"no argument is called {unknown[0]!r}. There are: {', '.join(names)}")
    return [given.get(name) for name in names]


def _kind(x: object) -> str:
    kind = type(x)
    return "None" if x is None else f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")
