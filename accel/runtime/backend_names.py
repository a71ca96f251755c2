"""Refuse names of backends that do not exist."""

from __future__ import annotations

from collections.abc import Collection


def check_name(backend: str, names: Collection[str]) -> None:
    """Raise ValueError, which lists the names, unless `backend` is `auto` or one of them."""
    if backend != "auto" and backend not in names:
        raise ValueError(f"no backend is called {backend!r}. There are: auto, {', '.join(names)}")
