"""Write the commands and the settings as Markdown, and the commands as a page for man(1).

python -m gpudeck.app.cli.reference FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpudeck.app.cli.main import CommandParser, make_parser
from gpudeck.app.settings.form import SETTINGS
from gpudeck.version import VERSION

_NOTE = "<!-- Made by: make docs -->"
_ADDRESS = "https://github.com/gpudeck/gpudeck"
_STATUS = (
    ("0", "The command succeeded."),
    ("1", "The command failed."),
    ("2", "The usage was wrong."),
    ("3", "It is not known whether a job was queued, or how it ended."),
)
_ENVIRONMENT = (
    ("GPUDECK_HOME", "The folder of the whole state, instead of ~/.local/state/gpudeck."),
    ("NO_COLOR", "Text on a terminal has no colors."),
)


def commands() -> str:
    """Return all commands with their options."""
    parts = [
        "# Commands",
        _NOTE,
        "`gpudeck` without a command opens the window. Every command that prints data takes "
        "`--json`. Exit status: 0 success, 1 failure, 2 wrong usage.",
    ]
    for name, description, options in _commands():
        parts += [f"## gpudeck {name}", description]
        if options:
            parts.append("\n".join(f"- `{_usage(each)}`: {each.help}" for each in options))
    return "\n\n".join(parts) + "\n"


def _commands() -> Iterator[tuple[str, str, list[argparse.Action]]]:
    """Yield the name of each command, what it does, and its options."""
    # argparse offers no public way to list subparsers and their options
    actions = make_parser()._actions
    (subparsers,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
    for name, parser in subparsers.choices.items():
        assert isinstance(parser, CommandParser)
        parser.add_command_arguments()
        options = [
            a
            for a in parser._actions
            if a.dest not in ("help", "json") and a.help is not argparse.SUPPRESS
        ]
        yield name, parser.description or "", options


def _usage(action: argparse.Action) -> str:
    """Return how an option is written."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    if action.nargs == 0:
        value = ""
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def man_page() -> str:
    """Return all commands with their options, in the language of man(7)."""
    general = [a for a in make_parser()._actions if a.option_strings]
    lines = [
        r".\" Made by: make docs",
        f'.TH GPUDECK 1 "" "GPU Deck {VERSION}" "User Commands"',
        ".nh",
        ".ad l",  # words to copy are neither hyphenated nor spread
        ".SH NAME",
        r"gpudeck \- watch NVIDIA GPUs, queue jobs on them, and run accelerated attention",
        ".SH SYNOPSIS",
        ".B gpudeck",
        r"[\fB\-\-host\fR \fINAME\fR] [\fICOMMAND\fR [\fIARGUMENT\fR ...]]",
        ".SH DESCRIPTION",
        _roff(make_parser().description or ""),
        _roff("Every command that prints data takes --json, and every command takes --help."),
        ".SH OPTIONS",
        *_items((_usage(each), each.help or "") for each in general),
        ".SH COMMANDS",
    ]
    for name, description, options in _commands():
        lines += [f".SS {_roff(name)}", _roff(description)]
        lines += _items((_usage(each), each.help or "") for each in options)
    lines += [".SH EXIT STATUS", *_items(_STATUS), ".SH ENVIRONMENT", *_items(_ENVIRONMENT)]
    lines += [".SH SEE ALSO", _roff(f"The manual: {_ADDRESS}")]
    return "\n".join(lines) + "\n"


def _items(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of a list of terms."""
    for term, text in rows:
        yield from (".TP", rf"\fB{_roff(term)}\fR", _roff(text))


def _roff(text: str) -> str:
    """Return a text in which roff(7) finds no requests."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


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


FILES = {"commands.md": commands, "settings.md": settings, "gpudeck.1": man_page}
"""The files that are made, and what returns their texts."""


if __name__ == "__main__":
    for name, make in FILES.items():
        (Path(sys.argv[1]) / name).write_text(make())
