"""List the settings, explain some of them, or change them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from gpudeck.app.cli.output import print_line, print_result, print_table
from gpudeck.app.settings.form import SETTINGS, Setting, change, text_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import NOT_SHOWN


def add_arguments(parser: ArgumentParser) -> None:
    """Add the names and values."""
    parser.add_argument(
        "items",
        nargs="*",
        metavar="NAME[=VALUE]",
        help="settings to explain, or to change; without any, all are listed",
    )


def run(args: Namespace) -> None:
    """Change what has a value, then show the settings that were named, or all."""
    parts = (item.partition("=") for item in args.items)
    asked = [(_find(name), text if given else None) for name, given, text in parts]
    with Client() as client:
        settings = client.snapshot(live=False).settings
        changes: dict[str, Any] = {}
        for setting, text in asked:
            if text is not None and (request := change(settings, setting, _checked(setting, text))):
                changes |= request.changes
        if changes:
            settings = client.configure(**changes)
    shown = [setting for setting, _ in asked] or list(SETTINGS)
    if args.json:
        print_result(args, {setting.name: getattr(settings, setting.name) for setting in shown})
    elif asked:
        for setting in shown:
            unit = (
                f" {setting.unit}" if setting.unit and text_of(settings, setting) != "off" else ""
            )
            print_line(f"{setting.name}: {text_of(settings, setting) or '(empty)'}{unit}")
            print_line(f"  {setting.help}")
    else:
        defaults = Settings()
        rows = [(s.name, _listed(settings, s), text_of(defaults, s)) for s in shown]
        print_table([("SETTING", "VALUE", "DEFAULT"), *rows])


def _listed(settings: Settings, setting: Setting) -> str:
    """Return the value of a setting in a list, which shows no secret."""
    text = text_of(settings, setting)
    return NOT_SHOWN if setting.name == "webhook" and text else text


def _find(name: str) -> Setting:
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise UserError(phrase("no setting is called {name}. See: gpudeck settings", name=repr(name)))


def _checked(setting: Setting, text: str) -> str:
    """Return the text of a value, or raise UserError if it is none of the choices."""
    choices = ("on", "off") if setting.kind == "switch" else setting.choices
    if setting.kind in ("switch", "choice") and text not in choices:
        raise UserError(
            phrase(
                "{name} is one of {names}; got {text}",
                name=setting.name,
                names=", ".join(choices),
                text=repr(text),
            )
        )
    return text
