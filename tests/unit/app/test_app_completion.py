"""The scripts that complete commands; bash's is run, the others where their shell is there."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.cli.system.completion import SHELLS, script
from tests.support import eventually


def complete(folder: Path, *words: str) -> list[str]:
    """Return what bash offers in a folder for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"""{script("bash")}
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
_shtab_gpudeck gpudeck '{words[-1]}' '{words[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_choices_and_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert complete(tmp_path, "gpudeck", "sub") == ["submit"]
    assert set(complete(tmp_path, "gpudeck", "")) >= {command.name for command in COMMANDS}
    assert complete(tmp_path, "gpudeck", "submit", "--gpu-") == ["--gpu-type"]
    assert set(complete(tmp_path, "gpudeck", "completion", "")) >= set(SHELLS)
    assert complete(tmp_path, "gpudeck", "reserve", "ca") == ["cancel"]
    assert complete(tmp_path, "gpudeck", "submit", "--", "python", "tr") == ["train.py"]
    of_the_job = complete(tmp_path, "gpudeck", "submit", "--", "--gp")
    assert "--gpu-type" not in of_the_job


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_names_each_command_and_is_valid(shell: str) -> None:
    made = script(shell)
    assert all(command.name in made for command in COMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=made, text=True, check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_commands_options_and_choices(tmp_path) -> None:
    file = tmp_path / "gpudeck.fish"
    file.write_text(script("fish"))

    def offered(line: str) -> set[str]:
        code = f"source {file}; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
        )
        assert done.stderr == ""
        return {line.partition("\t")[0] for line in done.stdout.splitlines()}

    assert offered("gpudeck sub") == {"submit"}
    assert "--gpu-type" in offered("gpudeck submit --gpu")
    assert set(SHELLS) <= offered("gpudeck completion ")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "completed"),
    [("gpudeck subm", "gpudeck submit"), ("gpudeck completion z", "gpudeck completion zsh")],
)
def test_zsh_completes_a_line_that_is_typed(tmp_path, line: str, completed: str) -> None:
    """Type into a real zsh on a terminal, and ask it for the line after Tab."""
    file = tmp_path / "gpudeck.zsh"
    file.write_text(script("zsh"))
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u -D\n"
        f'eval "$(< {file})"\n'
        'show() { print -r -- "<$BUFFER>" > $HOME/line; }\n'
        "zle -N show; bindkey '^X' show\n"
        "print ready > $HOME/ready\n"
    )
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(slave)
    try:
        eventually((tmp_path / "ready").exists)
        os.write(master, f"{line}\t\x18".encode())
        eventually((tmp_path / "line").exists)
        eventually(lambda: (tmp_path / "line").read_text().endswith(">\n"))
        assert (tmp_path / "line").read_text().strip("<>\n ") == completed
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
