"""Ask the assistant a question, or tell it what to do."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudeck.app.cli.assistant.decision import NO_TERMINAL, ask_decision, print_in, print_row
from gpudeck.app.cli.assistant.events import device, show_event
from gpudeck.app.cli.assistant.markdown import print_markdown
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    print_json,
    print_line,
    prompt,
)
from gpudeck.app.report.file import save_report
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.host_protocol import Answer, When
from gpudeck.assistant.intents.choices import Choice, choice_by_number
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.language.origins import reading, written_by
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.steps import ShowManual
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.language.languages import Language
from gpudeck.language.rendering import render
from gpudeck.language.text import join_texts, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError

_ALLOW_ONCE = phrase("To allow it: {command}", command="gpudeck ask --yes ...")
_UNCERTAIN = phrase(
    "--yes covers only requests that are, word by word, an exact form of an order, such as: "
    "cancel job 7. Use that, or a command such as gpudeck cancel 7"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the question, and the options for its answer."""
    parser.add_argument("question", nargs="+", metavar="WORD", help="your question or request")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="run the model on the CPU instead of waiting for a busy GPU",
    )
    parser.add_argument(
        "--when-idle",
        action="store_true",
        help="answer once the devices are idle",
    )
    parser.add_argument(
        "--continue",
        action="store_true",
        dest="goes_on",
        help="continue from the last question, so that you can write: it, them, the second one, "
        "and gpu 5?",
    )
    parser.add_argument(
        "--yes", action="store_true", help="allow the proposed action once, without asking"
    )
    parser.add_argument(
        "--details",
        action="store_true",
        help="also print the query that the request was read as, who read it, and the sources",
    )


def run(args: Namespace) -> int:
    """Print the answer; carry out a proposal that the user allows.

    Returns:
        The exit status: 1 if the user asked for an action and it was not carried out.
    """
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError('missing question. Example: gpudeck ask "what happened?"')
    assistant = Assistant()
    state = _last_state() if args.goes_on else State()
    when: When = "idle" if args.when_idle else "now"
    answer = assistant.ask(question, when, show_event, device(args), state=state)
    clear_progress()
    if answer.choices:
        choice = _choose(answer, args)
        if choice is None:
            return 1
        answer = assistant.ask(
            question, on_event=show_event, device=device(args), meant=choice.request, state=state
        )
        clear_progress()
    _keep(answer.state)
    if answer.proposal is not None:
        return _decide(assistant, answer, args)
    _print_answer(answer, args)
    return int(answer.role == "operate" or (answer.call is not None and answer.call.acts))


def _last_state() -> State:
    """Return what the last question on this command line was about."""
    try:
        return msgspec.json.decode(_file().read_bytes(), type=State)
    except (*MALFORMED, OSError):
        raise UserError(
            phrase("there is no earlier question to go on with: ask without --continue")
        ) from None


def _keep(state: State | None) -> None:
    """Keep what the question was about for `--continue`, readable by the user only."""
    if state is not None:
        with suppress(OSError):
            paths.replace_file(_file(), msgspec.json.encode(state))


def _file() -> Path:
    return paths.home() / "ask.json"


def _choose(answer: Answer, args: Namespace) -> Choice | None:
    """Return the meaning that the user chooses, or None if the user chooses none."""
    if args.json:
        print_json(answer)
    else:
        print_markdown(answer.text)
    if args.json:
        return None
    if not sys.stdin.isatty():
        declined = phrase("Nothing was done, because there is no terminal to ask on.")
        print_in(_language(answer), declined)
        return None
    which = phrase("Which one? [1-{n}, or none]", n=len(answer.choices))
    return choice_by_number(answer.choices, prompt(render(which, _language(answer))))


def _decide(assistant: Assistant, answer: Answer, args: Namespace) -> int:
    """Carry out the proposal if the user allows it; ask again if it has changed meanwhile."""
    while (proposal := answer.proposal) is not None:
        if not args.json:
            _print_proposal(proposal, answer, args)
        # a proposal that depends on a model or on a job's name is always shown first
        allowed = args.yes and proposal.certain
        if not allowed and args.json:
            print_json(answer)
            return 1
        if not allowed and not sys.stdin.isatty():
            both = (NO_TERMINAL, _ALLOW_ONCE if proposal.certain else _UNCERTAIN)
            print_in(_language(answer), join_texts(both, " "))
            return 1
        decision = "once" if allowed else ask_decision(proposal)
        if decision is None:
            raise UserError(render(phrase("nothing was done"), _language(answer)))
        outcome = assistant.approve(proposal, decision)
        _keep(outcome.state)
        state = outcome.state or answer.state
        answer = msgspec.structs.replace(
            outcome, call=answer.call, routed=answer.routed, state=state
        )
        if args.yes and answer.proposal is not None:
            raise UserError(phrase("the situation has changed, and nothing was done. Ask again"))
    _print_answer(answer, args)
    return 0


def _print_proposal(proposal: Proposal, answer: Answer, args: Namespace) -> None:
    print_line(f"{proposal.title}? {proposal.note}".rstrip())
    print_line(proposal.effect)
    for caption, value in proposal.details:
        print_row(_language(answer), caption, value)
    if args.details:
        _print_reading(answer)


def _print_answer(answer: Answer, args: Namespace) -> None:
    if args.json:
        print_json(answer)
        return
    print_markdown(answer.text)
    print_line()
    if answer.report is not None and isinstance(answer.call, Query) and answer.call.text == "pdf":
        file = _free_name(time.strftime("gpudeck-report-%Y-%m-%d"))
        save_report(answer.report, file, ".pdf")
        print_in(_language(answer), phrase("The report is in {file}.", file=str(file)))
    _print_place(answer)
    print_line(f"{render(written_by(answer.writer), _language(answer))}.")
    if args.details:
        _print_reading(answer)
        sources = {render(fact.source, _language(answer)) for fact in answer.facts}
        if sources:
            print_row(_language(answer), phrase("Sources"), "; ".join(sorted(sources)))


def _print_place(answer: Answer) -> None:
    """Print the command that shows the section of the manual which the answer quotes."""
    place = next((s.does for s in answer.steps if isinstance(s.does, ShowManual)), None)
    if place is not None:
        command = shlex.join(filter(None, ("gpudeck", "manual", place.page, place.heading)))
        print_in(_language(answer), phrase("To read more: {command}", command=command))


def _print_reading(answer: Answer) -> None:
    """Print the query or order that the request was read as, and who read it."""
    if answer.call is not None:
        for caption, value in reading(answer.call.line, answer.routed):
            print_row(_language(answer), caption, value)


def _language(answer: Answer) -> Language:
    return answer.state.language if answer.state is not None else "en"


def _free_name(stem: str) -> Path:
    """Return the name of a PDF in this folder that no file has yet."""
    names = itertools.chain([f"{stem}.pdf"], (f"{stem}-{n}.pdf" for n in itertools.count(2)))
    return next(Path(name) for name in names if not Path(name).exists())
