"""ask and report: the assistant's words on the command line."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path

from app.commands.output import say, say_json, status_line
from app.commands.queue import UsageError
from app.report_file import check_ending, save_report
from assistant.client import Assistant
from assistant.messages import Answer, Event, Waiting
from assistant.reports.files import FORMATS
from scheduler.errors import UserError

DAY_S = 86400.0


def ask(args: Namespace) -> int:
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError('no question was asked. Example: gpudeck ask "what happened?"')
    return _show(Assistant().ask(question, on_event=_on_event), args)


def report(args: Namespace) -> int:
    """On a job, on a day, or on a span: printed, or written to a file."""
    ending = _ending(args)
    since = time.time() - DAY_S if args.daily else args.since
    answer = Assistant().report(args.job, since, "now" if args.now else "idle", _on_event, daily=args.daily)
    assert answer.report is not None, "the assistant answers a report with one"
    if args.out:
        save_report(answer.report, Path(args.out), ending)
    status_line("")
    if args.json:
        say_json(answer)
    elif args.out:
        say(f"report written to {args.out} (by: {answer.writer})")
    else:
        for line in FORMATS[ending](answer.report).splitlines():
            say(line)
    return 0


def _ending(args: Namespace) -> str:
    """The format asked for. What is wrong with it, or with where it is to go, is said before a long wait."""
    file = Path(args.out) if args.out else None
    ending = f".{args.format}" if args.format else file.suffix.lower() if file else ".md"
    if file is None and ending not in FORMATS:
        raise UsageError(f"a report as {args.format} needs a file: --out FILE.{args.format}")
    if file is not None:
        check_ending(file, ending)
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise UserError(f"cannot write {file}: choose a file in a folder that is there and that you can write to")
    return ending


def _on_event(event: Event) -> None:
    if isinstance(event, Waiting):
        status_line(f"waiting: {event.reason}")


def _show(answer: Answer, args: Namespace) -> int:
    status_line("")
    if args.json:
        say_json(answer)
        return 0
    for line in answer.text.splitlines():
        say(line)
    say()
    say(f"(written by: {answer.writer})")
    return 0
