"""The command line: `gpudeck` opens the window, `gpudeck VERB` does one thing. Exit status 2 for usage, 1 for failure."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

from app import __version__
from app.cli.catalog import VERBS, Verb
from app.cli.output import status_line
from app.cli.usage import DEFAULT_TOUR, UsageError
from scheduler.protocol.errors import DaemonGone, UserError

Command = Callable[[argparse.Namespace], int]
_LINE = 120
"""Characters of a usage error beyond which what there is to choose from is left to --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; what the user can put right is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that knows no degree sign gets a question mark
    given = sys.argv[1:] if argv is None else argv
    args, left = parser().parse_known_args(given) if given else (_NO_COMMAND, [])
    if left:
        what = (
            f"one at a time is meant here; {left[0]} is too many"
            if left[0].isdigit()
            else f"there is no {' '.join(left)} here"
        )
        return _fail(f"{what}. See: {args.prog} --help", 2)
    try:
        command: Command = args.run
        return command(args)
    except UsageError as e:
        return _fail(str(e), 2)
    except DaemonGone as e:
        return _fail(
            f"{e}. Nothing is lost: jobs run on, and the next command starts what is missing.", 1
        )
    except (UserError, TimeoutError) as e:
        return _fail(str(e), 1)
    except BrokenPipeError:
        _drop_output()  # its reader left: so do we, quietly
        return 0
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_output()
        return _fail(f"cannot write the output: {e.strerror}. Free some space, and try again.", 1)
    except KeyboardInterrupt:
        status_line("")
        return 130


def _drop_output() -> None:
    """What standard output has not taken yet would fail again as Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(message: str, status: int) -> int:
    status_line("")
    print(f"gpudeck: {message}", file=sys.stderr)
    return status


def _window(args: argparse.Namespace) -> int:
    if not has_display():
        print(
            f"gpudeck: no display here, so the tour runs headless instead; its pictures go to {Path(DEFAULT_TOUR).absolute()}",
            flush=True,
        )
        return main(["tour"])
    from app.shell.main import run

    return run()


_NO_COMMAND = argparse.Namespace(run=_window, prog="gpudeck")
"""Without a word no parser is needed, which takes a hundredth of a second to make: the window is there sooner."""


def has_display() -> bool:
    """Whether there is a screen to open a window on."""
    if os.environ.get("QT_QPA_PLATFORM", "").split(":")[0] in ("offscreen", "minimal"):
        return False
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and where the rest is told."""

    verb: Verb | None = None
    """Whose arguments are still to be added: that of another command than the one that is run are not needed."""

    def error(self, message: str) -> NoReturn:
        if len(message) > _LINE:
            message = message.partition(" (choose from")[0]
        self.exit(2, f"gpudeck: {message}. See: {self.prog} --help\n")

    def filled(self) -> Self:
        """With all its arguments."""
        if self.verb is not None:
            verb, self.verb = self.verb, None
            if verb.json:
                self.add_argument("--json", action="store_true", help="print JSON")
            if verb.arguments:
                _found(f"cli.arguments.{verb.arguments}")(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.filled()
        return super().parse_known_args(args, namespace)


def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    parser = _Parser(
        prog=_NO_COMMAND.prog,
        description="Watch your GPUs, queue work on them, run accelerated attention. Without a command: the window.",
    )
    parser.add_argument("--version", action="version", version=f"gpudeck {__version__}")
    parser.set_defaults(**vars(_NO_COMMAND))
    made = parser.add_subparsers(title="commands", metavar="COMMAND")
    for verb in VERBS:
        one = made.add_parser(
            verb.name, help=verb.text, description=verb.text[0].upper() + verb.text[1:] + "."
        )
        one.set_defaults(
            run=lambda args, run=verb.run: _found(run)(args), json=False, prog=one.prog
        )
        one.verb = verb
    return parser


def _found(place: str) -> Callable[[Any], Any]:
    """A function of app by its place, `module:function`."""
    module, _, function = place.partition(":")
    found: Callable[[Any], Any] = getattr(import_module(f"app.{module}"), function)
    return found
