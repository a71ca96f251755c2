"""Ask a query of the one table that the assistant uses, too."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.assistant.markdown import print_markdown
from gpudeck.app.cli.output import print_json
from gpudeck.assistant.answers import answer
from gpudeck.assistant.query.execute import execute
from gpudeck.assistant.query.request import Query, Span, Target, Where
from gpudeck.assistant.query.table import AGGREGATES, GROUPINGS, ROWS, SUBJECTS
from gpudeck.language.text import phrase
from gpudeck.language.words import words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.units import parse_bytes


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subject, the measure, and the options, which are those of a Query."""
    add = parser.add_argument
    about = "; ".join(f"{name}: {SUBJECTS[name].about}" for name in ROWS)
    add("subject", choices=ROWS, metavar="SUBJECT", help=about)
    add("measure", nargs="?", default="", metavar="MEASURE", help="such as temp, power or energy")
    add("--gpus", default="", metavar="LIST", help="GPUs by index, such as 0,2-5")
    add("--jobs", default="", metavar="LIST", help="jobs by number or name, such as 7,9-12,train")
    add("--states", default="", metavar="LIST", help="states of jobs, or idle or busy")
    add("--user", default="", help="processes or jobs of this user")
    add("--group", default="", help="jobs of this group")
    add("--where", action="append", default=[], metavar="M>V", help="such as temp>80; repeatable")
    add("--since", type=arguments.moment, metavar="WHEN", help="2h ago, or 2026-11-20T14:30")
    add(
        "--until", type=arguments.moment, metavar="WHEN", help="end of the time span (default: now)"
    )
    add("--at", type=arguments.moment, metavar="WHEN", help="a moment, instead of a time span")
    add("--aggregate", choices=AGGREGATES, default="", help="combine all rows into one value")
    add("--by", choices=GROUPINGS, default="", help="add up the rows by user or by name")
    add("--order", choices=("up", "down"), default="", help="sort the rows by the measure")
    add(
        "--limit",
        type=arguments.positive_count,
        default=0,
        metavar="N",
        help="print the first N rows; with capacity: the number of jobs that start at once",
    )
    add(
        "--memory",
        default="",
        metavar="SIZE",
        help="with capacity: the memory reservation of a job on each GPU",
    )
    add("--count", type=arguments.positive_count, default=0, help="capacity: how many GPUs")
    add("--name", default="", help="the name of a setting")


def run(args: Namespace) -> None:
    """Print the answer; with --json, the rows."""
    query = _query(args)
    with Client() as daemon:
        rows = execute(daemon, query)
    if args.json:
        print_json(rows)
    else:
        print_markdown(answer(query, rows, words("en")))


def _query(args: Namespace) -> Query:
    return Query(
        args.subject,
        args.measure,
        devices=tuple(int(one) for one in _listed(args.gpus) if isinstance(one, int)),
        jobs=tuple(_listed(args.jobs)),
        states=tuple(filter(None, args.states.split(","))),
        user=args.user,
        group=args.group,
        where=tuple(map(_where, args.where)),
        time=_span(args),
        aggregate=args.aggregate,
        by=args.by,
        order=args.order,
        limit=args.limit,
        amount=parse_bytes(args.memory) if args.memory else 0.0,
        gpus=args.count,
        text=args.name,
    )


def _span(args: Namespace) -> Span | None:
    if args.at is not None:
        return Span(args.at, args.at, point=True)
    if args.since is None and args.until is None:
        return None
    return Span(args.since or 0.0, args.until if args.until is not None else time.time())


def _listed(text: str) -> list[Target]:
    found: list[Target] = []
    for part in filter(None, map(str.strip, text.split(","))):
        low, _, high = part.partition("-")
        if low.isdecimal() and high.isdecimal() and 0 <= int(high) - int(low) <= 1000:
            found += range(int(low), int(high) + 1)
        else:
            found.append(int(part) if part.isdecimal() else part)
    return found


def _where(text: str) -> Where:
    for sign in "<>":
        measure, found, value = text.partition(sign)
        if found:
            try:
                number = float(value)
            except ValueError:
                break
            above = number if sign == ">" else None
            return Where(measure.strip(), above, number if sign == "<" else None)
    raise UserError(phrase("a condition such as temp>80 is needed; got {text}", text=repr(text)))
