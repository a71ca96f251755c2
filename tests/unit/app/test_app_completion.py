"""The scripts that complete commands; bash's is run, the others where their shell is there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from app.cli.catalog import COMMANDS
from app.cli.system.completion import SHELLS, bash, completions, fish, zsh

MAKERS = {"bash": bash, "zsh": zsh, "fish": fish}


@pytest.fixture(scope="module")
def found():
    return completions()


def complete(script: str, *words: str) -> list[str]:
    """Return what bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _gpudeck\n"
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(found) -> None:
    script = bash(found)
    assert complete(script, "gpudeck", "sub") == ["submit"]
    assert set(complete(script, "gpudeck", "")) >= {command.name for command in COMMANDS}
    assert complete(script, "gpudeck", "submit", "--gpu-") == ["--gpu-type"]
    assert set(complete(script, "gpudeck", "completion", "")) >= set(SHELLS)
    assert complete(script, "gpudeck", "submit", "--", "--gp") == [], "the job's own arguments"


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_names_each_command_and_is_valid(found, shell: str) -> None:
    script = MAKERS[shell](found)
    assert all(command.name in script for command in COMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_no_help_text_is_interpreted_by_a_shell(found) -> None:
    for each in found:
        for text in (each.help, *(text for _, text in each.options)):
            assert not set(text) & set("'\"`$\\[]:;&|<>{}"), text
