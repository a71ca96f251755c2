"""Test that the documented commands and settings are those of the program."""

from __future__ import annotations

from pathlib import Path

from gpudeck.app.cli import reference
from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.cli.main import load

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_is_up_to_date() -> None:
    for name, made in (
        ("commands.md", reference.commands()),
        ("settings.md", reference.settings()),
    ):
        assert (DOCS / name).read_text() == made, f"docs/{name} is out of date. Run: make docs"


def test_every_command_has_a_function_and_a_unique_name() -> None:
    assert all(callable(getattr(load(command), command.function)) for command in COMMANDS)
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


def test_every_option_has_help() -> None:
    assert "`: None" not in reference.commands()
