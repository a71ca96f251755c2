"""The commands and settings as Markdown are as the program has them."""

from __future__ import annotations

from pathlib import Path

from app import reference

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_is_that_of_this_program() -> None:
    for name, made in (("commands.md", reference.commands()), ("settings.md", reference.settings())):
        assert (DOCS / name).read_text() == made, f"docs/{name} is not that of this program: make docs"
