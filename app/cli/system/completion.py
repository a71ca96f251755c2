"""Print a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
import re
import sys
from argparse import ArgumentParser, Namespace
from textwrap import shorten
from typing import NamedTuple

from gpudeck.extras import missing_by

_LONGEST = 70
SHELLS = ("bash", "zsh", "fish")


class Completion(NamedTuple):
    """Hold what can follow a command."""

    command: str
    help: str
    options: tuple[tuple[str, str], ...]
    """Flags, each with its help."""
    words: tuple[str, ...]
    """The choices of arguments without a flag."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    parser.epilog = (
        'bash: eval "$(gpudeck completion bash)" in ~/.bashrc; '
        'zsh: eval "$(gpudeck completion zsh)" in ~/.zshrc, after compinit; '
        "fish: gpudeck completion fish > ~/.config/fish/completions/gpudeck.fish"
    )


def run(args: Namespace) -> int:
    """Print the script."""
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    sys.stdout.write(scripts[args.shell](completions()))
    return 0


def completions() -> list[Completion]:
    """Return what can follow each command, as its parser knows it."""
    from gpudeck.app.cli.main import CommandParser, make_parser  # it imports the commands

    # argparse offers no public way to list subparsers and their options
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    found = []
    for name, parser in commands.choices.items():
        assert isinstance(parser, CommandParser)
        try:
            parser.add_command_arguments()
        except ModuleNotFoundError as e:
            if missing_by(e) is None:
                raise  # else a part is not installed: its commands are completed by their names
        found.append(
            Completion(
                name,
                _brief(helps[name]),
                tuple(
                    (flag, _brief(action.help))
                    for action in parser._actions
                    for flag in action.option_strings
                    if flag.startswith("--")
                ),
                tuple(
                    str(word)
                    for action in parser._actions
                    if not action.option_strings
                    for word in action.choices or getattr(action, "words", None) or ()
                ),
            )
        )
    return found


def _brief(text: str | None) -> str:
    """Return the beginning of a help text, without what a shell would interpret."""
    first = re.split(r"[:;]|\. (?=[A-Z])", text or "")[0].partition(", e.g. ")[0]
    plain = "".join(c for c in first if c.isalnum() or c in " ,.-()/").strip()
    short = shorten(plain, _LONGEST, placeholder=" ...")
    return re.sub(r"\s*\([^)]*$", "", short)  # a bracket whose end was cut off


def bash(found: list[Completion]) -> str:
    """Return the script for bash."""
    cases = "\n".join(
        f'    {c.command}) words="{" ".join([*(flag for flag, _ in c.options), *c.words])}" ;;'
        for c in found
    )
    names = " ".join(c.command for c in found)
    return f"""_gpudeck() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [ "${{COMP_WORDS[i]}}" = "--" ] && return  # the command of a job: files are completed
  done
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{names} --help --version"
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gpudeck gpudeck
"""


def zsh(found: list[Completion]) -> str:
    """Return the script for zsh."""
    names = "\n".join(f"    '{c.command}:{c.help}'" for c in found)
    cases = "\n".join(
        f"    {c.command}) words=("
        + " ".join([*(f"'{flag}:{text}'" for flag, text in c.options), *c.words])
        + ") ;;"
        for c in found
    )
    return f"""#compdef gpudeck
_gpudeck() {{
  local -a words_of commands
  commands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  if (( ${{words[(I)--]}} > 0 && ${{words[(I)--]}} < CURRENT )); then
    _files
    return
  fi
  case "${{words[2]}}" in
{cases.replace(" words=(", " words_of=(")}
  esac
  _describe option words_of
  _files
}}
compdef _gpudeck gpudeck
"""


def fish(found: list[Completion]) -> str:
    """Return the script for fish."""
    lines = ["complete -c gpudeck -n __fish_use_subcommand -l version -d 'print the version'"]
    for c in found:
        lines.append(
            f"complete -c gpudeck -n __fish_use_subcommand -f -a {c.command} -d '{c.help}'"
        )
        here = f"complete -c gpudeck -n '__fish_seen_subcommand_from {c.command}'"
        lines += [f"{here} -l {flag.removeprefix('--')} -d '{text}'" for flag, text in c.options]
        if c.words:
            lines.append(f"{here} -f -a '{' '.join(c.words)}'")
    return "\n".join(lines) + "\n"
