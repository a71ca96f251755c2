"""Test that the documented commands and settings are those of the program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudeck.app.cli import reference
from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.cli.main import load
from tests.support import LACKS

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_is_up_to_date() -> None:
    for name, make in reference.FILES.items():
        assert (DOCS / name).read_text() == make(), f"docs/{name} is out of date. Run: make docs"


def test_every_command_has_a_function_and_a_unique_name() -> None:
    assert all(callable(getattr(load(command), command.function)) for command in COMMANDS)
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


FORMATTERS = (
    ["groff", "-k", "-man", "-Tutf8", "-ww", "-P-c", "-rLL=100n"],
    ["mandoc", "-Tutf8", "-Werror", "-Owidth=100"],
)


@pytest.mark.parametrize("command", FORMATTERS, ids=lambda command: command[0])
def test_the_man_page_is_formatted_without_a_warning(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{LACKS} {command[0]}")
    done = subprocess.run(
        [*command, DOCS / "gpudeck.1"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    page = re.sub(".\b", "", done.stdout)  # terminals print twice what is bold
    for name in (command.name for command in COMMANDS):
        assert f"\n   {name}\n" in page
    assert "\n       --gpu-type " in page and "\\" not in page


def test_every_option_has_help() -> None:
    assert "`: None" not in reference.commands()
