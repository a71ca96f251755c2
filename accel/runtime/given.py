"""Refuse arguments that are no tensors."""

from __future__ import annotations

from torch import Tensor


def require_tensors(**given: object) -> None:
    """Raise TypeError, which names the first argument that is not a tensor, if there is one."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor; got {_kind(x)}")


def _kind(x: object) -> str:
    kind = type(x)
    return "None" if x is None else f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")
