"""A command that cannot be found is warned of, with the folder it was looked for in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.app.format.command_check import command_warning


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return a folder to run in, and one of commands with `python` and `trainer` in it."""
    here, commands = tmp_path / "run", tmp_path / "bin"
    here.mkdir()
    commands.mkdir()
    for name in ("python", "trainer"):
        file = commands / name
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    (here / "train.sh").write_text("#!/bin/sh\n")
    return here, commands


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python", ""),
        ("pyhton", "there is no command 'pyhton' in the folders of PATH: {bin}. Did you mean"),
        ("traner", "Did you mean trainer?"),
        ("zzzzzz", "there is no command 'zzzzzz' in the folders of PATH: {bin}."),
        ("train.sh", "There is a file of this name in {run}; to run it: ./train.sh"),
        ("./train.sh", "./train.sh in {run} cannot be executed. To allow it: chmod +x"),
        ("./trian.sh", "there is no ./trian.sh in {run}. Did you mean train.sh?"),
        ("{bin}/python", ""),
        ("{bin}/pythn", "there is no file {bin}/pythn. Did you mean {bin}/python?"),
        ("nowhere/at/all", "there is no nowhere/at/all in {run}."),
        ("", ""),
    ],
)
def test_what_is_said_of_a_command(folders, command: str, said: str) -> None:
    here, commands = folders
    names = {"run": here, "bin": commands}
    found = command_warning((command.format(**names), "-x"), str(here), str(commands))
    assert said.format(**names) in found and bool(found) == bool(said)
    assert "\n" not in found


def test_a_relative_folder_of_path_is_seen_from_the_folder_of_the_job(folders) -> None:
    here, _ = folders
    assert command_warning(("python",), str(here), "../bin") == ""


def test_many_folders_are_not_all_named(folders) -> None:
    here, _ = folders
    path = ":".join(f"/folder/{n}" for n in range(20))
    assert "/folder/5 and 14 more" in command_warning(("python",), str(here), path)
