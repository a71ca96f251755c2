"""The commands and the settings as Markdown, for people and for the assistant's search: python -m app.cli.reference FOLDER"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from app.cli.main import parser
from app.settings.form import SETTINGS

_MADE = "<!-- Made by: make docs -->"


def commands() -> str:
    """Every command with its options."""
    (verbs,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )  # argparse tells it no other way
    parts = [
        "# Commands",
        _MADE,
        "`gpudeck` alone opens the window. `--json` on every command that prints data. Exit status: 0 done, 1 failed, 2 wrong usage.",
    ]
    for name, verb in verbs.choices.items():
        parts += [f"## gpudeck {name}", verb.description or "", _options(verb.filled()._actions)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _options(actions: list[argparse.Action]) -> str:
    """Each on a line, those that explain themselves on one."""
    told = [action for action in actions if action.dest not in ("help", "json")]
    lines = [f"- `{_called(action)}`: {action.help}" for action in told if action.help]
    plain = [f"`{_called(action)}`" for action in told if not action.help]
    return "\n".join([*lines, *([f"- {', '.join(plain)}"] if plain else [])])


def _called(action: argparse.Action) -> str:
    takes = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    takes = action.metavar if isinstance(action.metavar, str) else takes
    return " ".join(
        filter(None, (", ".join(action.option_strings), "" if action.nargs == 0 else takes))
    )


def settings() -> str:
    """Every setting, as the window explains it."""
    return (
        "\n\n".join(
            [
                "# Settings",
                _MADE,
                "In the window under Settings; in Python `Client().configure(name=value)`.",
                *_groups(),
            ]
        )
        + "\n"
    )


def _groups() -> Iterator[str]:
    for group in dict.fromkeys(setting.group for setting in SETTINGS):
        yield f"## Settings: {group}"
        yield "\n".join(
            f"- **{s.title}** (`{s.name}`{f', in {s.unit}' if s.unit else ''}): {s.help}"
            for s in SETTINGS
            if s.group == group
        )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "commands.md").write_text(commands())
    (folder / "settings.md").write_text(settings())
