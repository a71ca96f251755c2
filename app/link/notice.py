"""A message about what was done, with what the user can do next. Free of Qt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

SECONDS = 10.0
"""How long a notice is shown."""


class NoticeAction(NamedTuple):
    """Describe a button of a notice."""

    title: str
    act: Callable[[], object]


@dataclass(frozen=True)
class Notice:
    """Tell that something was done, and offer to undo it or to look at it."""

    text: str
    actions: tuple[NoticeAction, ...] = ()
    file: str = ""
    """The file that was written; it can be opened, or shown in its folder."""
    seconds: float = SECONDS
