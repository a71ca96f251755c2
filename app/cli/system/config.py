"""Keep the settings in a file of TOML: check it, apply it, or print the present settings so."""

from __future__ import annotations

import json
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.app.cli.files import read_bytes
from gpudeck.app.cli.output import UsageError, print_line, print_result
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.settings import Settings, changed

_EXAMPLE = "gpudeck config check gpudeck.toml"
_TABLES = ("clusters", "hosts", "limits")
"""Settings with entries of their own names."""
_LEFT_OUT = {
    "reservations": phrase("bookings are made with: gpudeck reserve"),
    "webhook": phrase("it may be a secret. Set it with: gpudeck settings webhook=ADDRESS"),
}
"""What does not belong into a file that others read, and where it is set."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to do, and the file."""
    parser.add_argument(
        "action",
        choices=("check", "apply", "show"),
        metavar="check|apply|show",
        help="check a file, put its settings in force, or print the settings that are not the "
        "defaults",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file of TOML")


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    if (args.file is None) != (args.action == "show"):
        raise UsageError(f"check and apply need a file, and show needs none. Example: {_EXAMPLE}")
    if args.action == "show":
        with Client() as client:
            settings = client.snapshot(live=False).settings
        for line in _lines(settings):
            print_line(line)
        return
    wanted, named = _read(Path(args.file))
    text = f"{args.file} is right: it names {len(named)} settings."
    if args.action == "apply":
        with Client() as client:
            client.apply_settings(wanted, named)
        text = f"{len(named)} settings of {args.file} are in force. The others are as they were."
    print_result(args, {"settings": named}, text)


def _read(file: Path) -> tuple[Settings, list[str]]:
    """Return the settings of a file, and the names of those that it sets. Raises UserError."""
    try:
        found = tomllib.loads(read_bytes(file).decode())
    except MALFORMED as e:
        raise UserError(phrase("{file} is no TOML: {error}", file=str(file), error=str(e))) from e
    for name, why in _LEFT_OUT.items():
        if name in found:
            raise UserError(
                phrase(
                    "{file}: {name} is not set in a file, as {why}",
                    file=str(file),
                    name=name,
                    why=why,
                )
            )
    try:
        return changed(Settings(), found), sorted(found)
    except UserError as e:
        raise UserError(phrase("{file}: {error}", file=str(file), error=e.message)) from e


def _lines(settings: Settings) -> Iterator[str]:
    """Yield the settings that are not the defaults, as TOML."""
    values: dict[str, Any] = msgspec.to_builtins(settings)  # leaves defaults out
    for name, why in _LEFT_OUT.items():
        if values.pop(name, None):
            yield f"# {name} is set and left out: {why}"
    for name, value in values.items():
        if name not in _TABLES:
            yield _entry(name, value)
    for table in _TABLES:
        for name, entries in values.get(table, {}).items():
            yield from _table(table, name, entries)


def _table(table: str, name: str, entries: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"[{table}.{json.dumps(name)}]"
    for key, value in entries.items():
        yield _entry(key, value)


def _entry(name: str, value: object) -> str:
    """Write one setting; the strings and numbers of JSON are those of TOML."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"
