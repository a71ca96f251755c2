"""Run the command line: `gpudeck` opens the window, `gpudeck COMMAND` runs one command.

The exit status is 0 for success, 1 for failure, 2 for wrong usage, and 3 where it is not known
whether a job was queued.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

from gpudeck.app.cli.catalog import COMMANDS, TOUR_FOLDER, Command
from gpudeck.app.cli.output import UsageError, clear_progress, print_error
from gpudeck.extras import missing_by, missing_of
from gpudeck.scheduler.protocol.errors import (
    DaemonGone,
    EndUnknown,
    OutcomeUnknown,
    UserError,
    no_machine,
)
from gpudeck.version import VERSION

_WRONG_CHOICE = (
    r"argument (?P<argument>.*): invalid choice: '(?P<given>[^']*)' \(choose from (?P<choices>.*)\)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    An error that the user can fix is printed as one line on standard error.

    Args:
        argv: The arguments, without the program's name; those of this process if omitted.
    """
    _fill_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without a degree sign shows a question mark
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if argv is None else argv
    if given and sys.stdout is None:
        return _fail("standard output is closed. To discard the output, use: >/dev/null", 1)
    try:
        return _run(given)
    except (UsageError, UserError, TimeoutError, ModuleNotFoundError) as e:
        return _fail(*_explain(e))
    except BrokenPipeError:  # the reader of a pipe has closed it, as `head` does
        _discard_output()
        return 0
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        return _fail(f"cannot write the output: {e.strerror}. Free some space and try again.", 1)
    except KeyboardInterrupt:
        clear_progress()
        return 130


def _run(given: Sequence[str]) -> int:
    """Parse the words of one command, and carry it out."""
    args, extra = make_parser().parse_known_args(given) if given else (_NO_COMMAND, [])
    if extra:
        if hasattr(args, "explain_extra"):
            args.explain_extra(args, given, extra)
        raise UsageError(f"{_describe_extra(extra)}. See: {args.prog} --help")
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see gpudeck/__main__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status: int | None = _run_there(args) if args.machine else args.run(args)
    return status or 0


def _explain(error: Exception) -> tuple[str, int]:
    """Return the line about an error that the user can correct, and the exit status.

    Raises ModuleNotFoundError where no part of GPU Deck brings what is missing: that is a bug.
    """
    match error:
        case UsageError():
            return str(error), 2
        case OutcomeUnknown() | EndUnknown():
            return str(error), 3
        case DaemonGone():
            return f"{error}. Running jobs continue. See: gpudeck daemon status", 1
        case ModuleNotFoundError():
            if (missing := missing_by(error)) is None:
                raise error
            return str(missing), 1
        case _:
            return str(error), 1


def _run_there(args: argparse.Namespace) -> int | None:
    """Run a command with the queue of the machine that `--host` names."""
    if not args.remote:
        queue = ", ".join(command.name for command in COMMANDS if command.remote)
        raise UsageError(f"--host goes with commands of the queue: {queue}")
    from gpudeck.scheduler.client import Client
    from gpudeck.scheduler.hosts.tunnel import tunnel

    with Client() as client:
        known = client.snapshot(live=False).settings.hosts
    if args.machine not in known:
        raise UserError(no_machine(args.machine))
    with tunnel(args.machine, known[args.machine]) as place:
        Client.default_place = place
        try:
            status: int | None = args.run(args)
            return status
        finally:
            Client.default_place = None


def _fill_standard_descriptors() -> None:
    """Open /dev/null where the caller closed a standard descriptor.

    Otherwise the next file or socket would get its number, and with it what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as Python does


def _describe_extra(extra: list[str]) -> str:
    if extra[0].isdigit():
        return f"this command takes one number; {extra[0]} is too many"
    return f"unknown argument: {' '.join(extra)}"


def _discard_output() -> None:
    """Redirect standard output, whose unwritten rest would fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(message: str, status: int) -> int:
    clear_progress()
    print_error(message)
    return status


def _open_window(args: argparse.Namespace) -> int:
    if missing := missing_of("window"):
        return _fail(f"{missing}. Without a window, see: gpudeck --help", 1)
    if not has_display():
        folder = Path(TOUR_FOLDER).absolute()
        print(
            f"gpudeck: there is no display; the tour runs instead and saves pictures to {folder}",
            flush=True,
        )
        return main(["tour"])
    from gpudeck.app.shell.main import run

    return run()


_NO_COMMAND = argparse.Namespace(run=_open_window, prog="gpudeck", machine=None, remote=False)
"""Making a parser takes 10 ms, which would delay the window."""


def has_display() -> bool:
    """Return True if there is a screen on which a window can be opened."""
    if os.environ.get("QT_QPA_PLATFORM", "").split(":")[0] in ("offscreen", "minimal"):
        return False
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class CommandParser(argparse.ArgumentParser):
    """Parse one command line, and report an error in one line.

    The arguments of a command are added when they are first needed, because this imports the
    command's module.
    """

    command: Command | None = None
    """The command whose arguments have not been added yet."""
    given: Sequence[str] = ()
    """The words that are parsed."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"argument COMMAND: invalid choice: '([^']*)'", message):
            message = f"there is no command {unknown[1]!r}{_meant(unknown[1])}"
        elif wrong := re.match(_WRONG_CHOICE, message):
            place = "" if "|" in wrong["argument"] else f"argument {wrong['argument']}: "
            choices = wrong["choices"].replace("'", "")
            message = f"{place}{wrong['given']!r} is none of {choices}"
        elif re.match("argument [A-Z]+: ", message) and (stray := self._stray_option()):
            message = f"unknown argument: {stray}"  # whose value was taken for a word
        end = "" if message.endswith("?") else "."
        self.exit(2, f"gpudeck: {message}{end} See: {self.prog} --help\n")

    def add_command_arguments(self) -> Self:
        """Add the arguments of this parser's command, once."""
        if self.command is not None:
            command, self.command = self.command, None
            if command.json:
                self.add_argument("--json", action="store_true", help="print JSON")
            module = load(command)
            if hasattr(module, "add_arguments"):
                module.add_arguments(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.add_command_arguments()
        self.given = args or ()
        found, extra = super().parse_known_args(args, namespace)
        listed = [a for a in self._actions if a.nargs in ("*", "+") and not a.option_strings]
        if listed and extra and not any(word.startswith("-") for word in extra):
            (action,) = listed  # words behind an option: `run gemm --wait size=512`
            try:
                more = self._get_values(action, extra)
            except argparse.ArgumentError as e:
                self.error(str(e))
            setattr(found, action.dest, [*(getattr(found, action.dest) or ()), *more])
            extra = []
        return found, extra

    def _stray_option(self) -> str:
        """Return the first option that this parser does not know, or nothing."""
        known = tuple(self._option_string_actions)
        names = (word.partition("=")[0] for word in self.given if word.startswith("--"))
        return next((n for n in names if not any(k.startswith(n) for k in known)), "")


ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "ps", "queue", "show", "info", "squeue"), "jobs"),
    **dict.fromkeys(("add", "enqueue", "sbatch", "srun"), "submit"),
    **dict.fromkeys(("rm", "remove", "stop", "scancel"), "cancel"),
    **dict.fromkeys(("output", "tail", "cat"), "logs"),
    "hold": "pause",
    **dict.fromkeys(("release", "continue"), "resume"),
    "top": "watch",
}
"""Commands by the names that they have in other queues and monitors."""


def _meant(name: str) -> str:
    """Return the question for the command that a wrong name resembles; empty if there is none."""
    from difflib import get_close_matches  # only here

    similar = get_close_matches(name, [command.name for command in COMMANDS], n=1)
    meant = ELSEWHERE.get(name) or next(iter(similar), "")
    return f". Did you mean {meant}?" if meant else ""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = CommandParser(
        prog=_NO_COMMAND.prog,
        description="Watch your GPUs, queue work on them, and run accelerated attention. "
        "Without a command, open the window.",
    )
    parser.add_argument(
        "--host",
        dest="machine",
        metavar="NAME",
        help="use the queue of another machine on which GPU Deck runs (see: gpudeck host)",
    )
    parser.add_argument("--version", action="version", version=f"gpudeck {VERSION}")
    parser.set_defaults(**vars(_NO_COMMAND))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}."
        sub = commands.add_parser(command.name, help=command.help, description=description)
        sub.command = command
        sub.set_defaults(
            run=lambda args, command=command: getattr(load(command), command.function)(args),
            json=False,
            prog=sub.prog,
            remote=command.remote,
        )
    return parser


def load(command: Command) -> Any:
    """Import the module of a command."""
    return import_module(f"gpudeck.app.{command.module}")
