"""ask and report: the assistant's words on the command line."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from app.commands.output import say, say_json, status_line
from app.commands.queue import UsageError
from assistant.client import Assistant
from assistant.messages import Answer, Event, Waiting
from scheduler.errors import UserError


def ask(args: Namespace) -> int:
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError('no question was asked. Example: gpudeck ask "what happened?"')
    return _show(Assistant().ask(question, on_event=_on_event), args)


def report(args: Namespace) -> int:
    answer = Assistant().report(job=args.job, when="now" if args.now else "idle", on_event=_on_event)
    if args.out:
        try:
            Path(args.out).write_text(answer.text + "\n")
        except OSError as e:
            raise UserError(f"cannot write {args.out}: {e.strerror}") from e
        status_line("")
        if not args.json:
            say(f"report written to {args.out} (by: {answer.writer})")
            return 0
    return _show(answer, args)


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
