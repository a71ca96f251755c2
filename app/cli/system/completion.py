"""Print a script that completes commands and options in a shell, as shtab writes it."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace

from gpudeck.extras import missing_by

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    parser.epilog = (
        'bash: eval "$(gpudeck completion bash)" in ~/.bashrc; '
        'zsh: eval "$(gpudeck completion zsh)" in ~/.zshrc, after compinit; '
        "fish: gpudeck completion fish > ~/.config/fish/completions/gpudeck.fish"
    )


def run(args: Namespace) -> None:
    """Print the script."""
    sys.stdout.write(script(args.shell))


def script(shell: str) -> str:
    """Return the script for a shell, with all commands and their options."""
    import shtab

    from gpudeck.app.cli.main import CommandParser, make_parser  # it imports the commands

    whole = make_parser()
    # argparse offers no public way to list subparsers and their options
    (commands,) = (a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    for parser in commands.choices.values():
        assert isinstance(parser, CommandParser)
        try:
            parser.add_command_arguments()
        except ModuleNotFoundError as e:
            if missing_by(e) is None:
                raise  # else a part is not installed: its commands are completed by their names
        for action in parser._actions:
            action.choices = action.choices or getattr(action, "words", None)
            if action.choices is None and action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(whole, shell=shell))
