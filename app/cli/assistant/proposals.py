"""List what programs propose, and decide on it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.assistant.decision import (
    NO_TERMINAL,
    ask_about_program,
    print_in,
    print_row,
)
from gpudeck.app.cli.assistant.markdown import print_markdown
from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.format.values import clock
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError


def add_arguments(parser: ArgumentParser) -> None:
    """Add the proposal to decide on."""
    parser.add_argument(
        "proposal", nargs="?", metavar="ID", help="decide on this one; its beginning is enough"
    )


def run(args: Namespace) -> int:
    """List the proposals of programs, or show one and ask whether it shall be carried out."""
    assistant = Assistant(start=False)
    try:
        waiting = assistant.proposals().waiting
    except (DaemonGone, FileNotFoundError):
        waiting = ()  # they end with the assistant
    if args.proposal:
        return _decide(assistant, _find(waiting, args.proposal))
    if args.json:
        print_json(waiting)
    elif waiting:
        rows = [(one.id[:8], one.by, one.title, clock(one.expires)) for one in waiting]
        print_table([("ID", "PROGRAM", "PROPOSES", "UNTIL"), *rows])
        print_line("To decide on one: gpudeck proposals ID")
    else:
        print_line("No program proposes anything.")
    return 0


def _find(waiting: tuple[Proposal, ...], start: str) -> Proposal:
    found = [one for one in waiting if one.id.startswith(start)]
    if len(found) != 1:
        raise UserError(
            phrase(
                "several proposals begin with {start}. See: gpudeck proposals", start=repr(start)
            )
            if found
            else phrase(
                "no proposal that waits begins with {start}. See: gpudeck proposals",
                start=repr(start),
            )
        )
    return found[0]


def _decide(assistant: Assistant, proposal: Proposal) -> int:
    """Show a proposal, ask, and print what was done; ask again if it has changed meanwhile."""
    print_line(f"{proposal.by}: {proposal.title}? {proposal.note}".rstrip())
    print_line(proposal.effect)
    for caption, value in proposal.details:
        print_row(proposal.language, caption, value)
    if not sys.stdin.isatty():
        print_in(proposal.language, NO_TERMINAL)
        return 1
    decision = ask_about_program(proposal)
    if decision is None:
        print_in(proposal.language, phrase("It still waits."))
        return 1
    answer = assistant.approve(proposal, decision)
    if answer.proposal is not None:
        return _decide(assistant, answer.proposal)
    print_markdown(answer.text)
    return int(decision != "once")
