"""What a person may do next: give an order, open a page of the window, or read the manual."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.query.request import Order, Query
from gpudeck.language.text import Text


class ShowPage(msgspec.Struct, frozen=True, omit_defaults=True, tag="page"):
    """Open a page of the window."""

    page: str
    """As the window calls it, such as `cleanup`."""
    job: int = 0
    """The job that the page `jobs` shows; 0: none."""


class ShowManual(msgspec.Struct, frozen=True, omit_defaults=True, tag="manual"):
    """Open the manual."""

    page: str
    """The name of its file without the end, such as `queue`."""
    heading: str = ""
    """The section as the file has it; empty: the page from its start."""


class Step(msgspec.Struct, frozen=True):
    """Offer one thing as a button."""

    title: Text
    does: Query | Order | ShowPage | ShowManual
