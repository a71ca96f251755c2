"""Write the commands and the settings as Markdown: python -m gpudeck.app.cli.reference FOLDER."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpudeck.app.cli.main import CommandParser, make_parser
from gpudeck.app.settings.form import SETTINGS

_NOTE = "<!-- Made by: make docs -->"


def commands() -> str:
    """Return all commands with their options."""
    # argparse offers no public way to list subparsers and their options
    actions = make_parser()._actions
    (subparsers,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
    parts = [
        "# Commands",
        _NOTE,
        "`gpudeck` without a command opens the window. Every command that prints data takes "
        "`--json`. Exit status: 0 success, 1 failure, 2 wrong usage.",
    ]
    for name, parser in subparsers.choices.items():
        assert isinstance(parser, CommandParser)
        parser.add_command_arguments()
        parts += [f"## gpudeck {name}", parser.description or ""]
        options = [a for a in parser._actions if a.dest not in ("help", "json")]
        if options:
            parts.append("\n".join(map(_option, options)))
    return "\n\n".join(parts) + "\n"


def _option(action: argparse.Action) -> str:
    """Return an option as an item of a list."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    if action.nargs == 0:
        value = ""
    usage = " ".join(filter(None, (", ".join(action.option_strings), value)))
    return f"- `{usage}`: {action.help}"


def settings() -> str:
    """Return all settings with their explanations."""
    parts = [
        "# Settings",
        _NOTE,
        "In the window under Settings; on the command line `gpudeck settings name=value`; in Python"
        " `Client().configure(name=value)`.",
    ]
    for group in dict.fromkeys(setting.group for setting in SETTINGS):
        lines = []
        for setting in SETTINGS:
            if setting.group == group:
                unit = f", in {setting.unit}" if setting.unit else ""
                lines.append(f"- **{setting.title}** (`{setting.name}`{unit}): {setting.help}")
        parts += [f"## Settings: {group}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "commands.md").write_text(commands())
    (folder / "settings.md").write_text(settings())
