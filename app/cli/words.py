"""ask, report and permissions: the assistant on the command line."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from pathlib import Path

import msgspec

from app.cli.output import say, say_json, status_line
from app.cli.usage import UsageError
from app.report.file import ENDINGS, check_ending, save_report
from assistant.client import Assistant
from assistant.intents.choices import Choice, numbered
from assistant.messages import Answer, DeviceChoice, Event, Waiting
from assistant.reports.files import FORMATS
from assistant.tools.permissions import take_back
from assistant.tools.proposal import Decision
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.progress import printable

DAY_S = 86400.0
_AT_ONCE = "To allow it at once: gpudeck ask --yes ..."
_UNSURE = (
    "--yes is for what the words say themselves; here a model, or the name of a job, may settle it, or they ask, or make a condition, "
    "which no order takes. Name jobs by their number, or take the command for it, such as gpudeck cancel 7"
)


def ask(args: Namespace) -> int:
    """Status 1 for an order that was not carried out; a question is answered also where the answer is that nothing is known."""
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError('no question was asked. Example: gpudeck ask "what happened?"')
    assistant = Assistant()
    answer = assistant.ask(question, on_event=_on_event, device=_device(args))
    status_line("")
    if answer.choices:
        chosen = _chosen(answer, args)
        if chosen is None:
            return 1
        answer = assistant.ask(
            question, on_event=_on_event, device=_device(args), meant=chosen.call
        )
        status_line("")
    if answer.proposal is None:
        _show(answer, args)
        return int(_is_order(answer))
    return _decide(assistant, answer, args)


def _is_order(answer: Answer) -> bool:
    """Whether something was to be done; where no tool does it, there is no call."""
    return answer.role == "operate" if answer.call is None else answer.call.acts


def _chosen(answer: Answer, args: Namespace) -> Choice | None:
    """What the person at the terminal means; None: none of these, or there is nobody to ask."""
    if args.json:
        say_json(answer)
        return None
    for line in answer.text.splitlines():
        say(line)
    if not sys.stdin.isatty():
        say("nothing was done, as there is nobody to ask")
        return None
    sys.stderr.write(f"Which? [1-{len(answer.choices)}, else none] ")
    sys.stderr.flush()
    return numbered(answer.choices, sys.stdin.readline())


def permissions(args: Namespace) -> int:
    """What the assistant must not propose; taken back where it is named."""
    with Client() as deck:
        never = take_back(deck, *args.forget)
    if args.json:
        say_json({"never": never})
    elif never:
        say(
            f"never proposed: {', '.join(never)}. To take one back: gpudeck permissions --forget '{never[0]}'"
        )
    else:
        say(
            "the assistant may propose everything that it can do; it does nothing before you allow it"
        )
    return 0


def _decide(assistant: Assistant, answer: Answer, args: Namespace) -> int:
    """Ask whether what was proposed is to be done; anew, where things have changed meanwhile. Status 1 where it is not."""
    while answer.proposal is not None:
        if not args.json:
            say(f"{answer.proposal.title}? {answer.proposal.note}".rstrip())
            say(answer.proposal.effect)
            for caption, value in answer.proposal.details:
                say(f"{caption.lower()}: {value}")
            say(f"tool: {_found(answer)}")
        at_once = (
            args.yes and answer.proposal.certain
        )  # what only a model, or the name of a job, made of the words is looked at first
        if not at_once and (args.json or not sys.stdin.isatty()):
            if args.json:
                say_json(answer)
            else:
                say(
                    f"nothing was done, as there is nobody to ask. {_UNSURE if args.yes else _AT_ONCE}"
                )
            return 1
        how = "once" if at_once else _word()
        if how is None:
            raise UserError("nothing was done")
        answer = msgspec.structs.replace(
            assistant.approve(answer.proposal, how), call=answer.call, routed=answer.routed
        )
        if args.yes and answer.proposal is not None:
            raise UserError("things have changed meanwhile, and nothing was done. Ask again")
    _show(answer, args)
    return 0


def _word() -> Decision | None:
    """What the person at the terminal says; None: no."""
    sys.stderr.write("Do it? [y/N/never] ")
    sys.stderr.flush()
    said = sys.stdin.readline().strip().lower()
    return "once" if said in ("y", "yes") else "never" if said == "never" else None


def report(args: Namespace) -> int:
    """On a job, on a day, or on a span: printed, or written to a file."""
    ending = _ending(args)
    since = time.time() - DAY_S if args.daily else args.since
    answer = Assistant().report(
        args.job,
        since,
        "now" if args.now else "idle",
        _on_event,
        daily=args.daily,
        device=_device(args),
    )
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
    if file is not None and file.suffix.lower() in ENDINGS and file.suffix.lower() != ending:
        raise UsageError(
            f"--format {args.format} and --out {file} are two formats: leave out --format, or name it {file.stem}{ending}"
        )
    if file is not None:
        check_ending(file, ending)
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise UserError(
                f"cannot write {file}: choose a file in a folder that is there and that you can write to"
            )
    return ending


def _on_event(event: Event) -> None:
    """What it waits for, on a terminal as it changes; a script hears of a wait for others, as that may be long."""
    if not isinstance(event, Waiting):
        return
    hint = (
        "--cpu: on the CPU now; "
        if event.cpu
        else "--now: at once; "
        if event.reason.startswith("waits for idle")
        else ""
    )
    status_line(f"{hint}waiting: {event.reason}")
    if hint and not sys.stderr.isatty():
        sys.stderr.write(f"{printable(event.reason)} ({hint.rstrip('; ')})\n")


def _device(args: Namespace) -> DeviceChoice:
    return "cpu" if args.cpu else "auto"


def _show(answer: Answer, args: Namespace) -> None:
    if args.json:
        say_json(answer)
        return
    for line in answer.text.splitlines():
        say(line)
    say()
    sources = sorted({fact.source for fact in answer.facts})
    if sources:
        say(f"(sources: {'; '.join(sources)})")
    where = f" on {answer.where}" if answer.writer != "template" and answer.device else ""
    told = (f"written by: {answer.writer}{where}", _found(answer))
    say(f"({'; '.join(filter(None, told))})")


def _found(answer: Answer) -> str:
    """The tool that the request was found to need, and by whom; empty where there is none."""
    return f"{answer.call.line}, found by: {answer.routed}" if answer.call is not None else ""
