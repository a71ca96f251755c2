"""The scripts that complete commands; bash's is run, the others where their shell is there."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess

import pytest

from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.cli.system.completion import SHELLS, bash, completions, fish, zsh
from tests.support import eventually

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
    assert complete(script, "gpudeck", "reserve", "ca") == ["cancel"]
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


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_commands_options_and_choices(found, tmp_path) -> None:
    file = tmp_path / "gpudeck.fish"
    file.write_text(fish(found))

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
def test_zsh_completes_a_line_that_is_typed(found, tmp_path, line: str, completed: str) -> None:
    """Type into a real zsh on a terminal, and ask it for the line after Tab."""
    file = tmp_path / "gpudeck.zsh"
    file.write_text(zsh(found))
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u -D\n"
        f"source {file}\n"
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


def test_no_help_text_ends_in_the_middle(found) -> None:
    for each in found:
        for text in (each.help, *(text for _, text in each.options)):
            assert text.count("(") == text.count(")"), text
            assert not text.endswith("e.g"), text
