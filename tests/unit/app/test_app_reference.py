"""The commands and settings as Markdown are as the program has them."""

from __future__ import annotations

from pathlib import Path

from app.cli import reference
from app.cli.catalog import VERBS
from app.cli.main import _found

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_is_that_of_this_program() -> None:
    for name, made in (
        ("commands.md", reference.commands()),
        ("settings.md", reference.settings()),
    ):
        assert (DOCS / name).read_text() == made, (
            f"docs/{name} is not that of this program: make docs"
        )


def test_every_command_has_something_that_does_it_and_a_name_of_its_own() -> None:
    assert all(callable(_found(verb.run)) for verb in VERBS)
    assert len({verb.name for verb in VERBS}) == len(VERBS)
