"""List, add and revoke the access tokens with which programs act without asking."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.arguments import add_action, duration
from gpudeck.app.cli.output import UsageError, print_json, print_line, print_result, print_table
from gpudeck.app.format.values import clock
from gpudeck.assistant.tools import access_files
from gpudeck.assistant.tools.access import AccessToken
from gpudeck.language.rendering import render_moment
from gpudeck.language.text import moment, phrase
from gpudeck.scheduler.protocol.errors import NotFound

_EXAMPLES = {
    "add": "gpudeck token add nightly --allow retry --allow cancel --jobs all --for 7d",
    "revoke": "gpudeck token revoke nightly",
    "acts": "gpudeck token acts nightly",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the token, and its rights."""
    add_action(parser, "add", "revoke", "acts")
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="your name for the token, e.g. nightly")
    add(
        "--allow",
        action="append",
        default=[],
        metavar="VERB",
        help="an order that needs no approval, e.g. retry; can be repeated. With submit, the "
        "program can run any command as you",
    )
    add(
        "--jobs",
        choices=("own", "all"),
        default="own",
        help="the jobs that orders may concern: those that were submitted with the token (own, the "
        "default), or all",
    )
    add(
        "--for",
        dest="lasts",
        type=duration,
        default="30d",
        metavar="TIME",
        help="how long the token is valid, e.g. 12h or 7d (default: 30d)",
    )


def run(args: Namespace) -> int:
    """Carry out the action that the arguments name."""
    if args.action == "list":
        return _list(args)
    if not args.name:
        raise UsageError(f"missing name. Example: {_EXAMPLES[args.action]}")
    if args.action == "add":
        return _add(args)
    if args.action == "acts":
        return _list_acts(args)
    access_files.revoke(args.name)
    print_result(args, None, f"{args.name} was revoked. Programs that use it are refused.")
    return 0


def _add(args: Namespace) -> int:
    if not args.allow:
        raise UsageError(f"missing --allow VERB. Example: {_EXAMPLES['add']}")
    verbs = tuple(dict.fromkeys(args.allow))
    secret = access_files.add(args.name, verbs, args.jobs, args.lasts)
    print_result(
        args,
        {"name": args.name, "token": secret},
        f"token: {secret} (not shown again)",
        f"Give it to the program that starts gpudeck mcp, as the environment variable "
        f"{access_files.VARIABLE}.",
    )
    return 0


def _list(args: Namespace) -> int:
    known, now = access_files.access_tokens(), time.time()
    if args.json:
        print_json([_shown(token, now) for token in known])
    elif known:
        rows = [
            (
                token.name,
                ", ".join(token.verbs),
                token.jobs,
                render_moment(moment(token.ends, now)),
                token.state(now),
                str(len(access_files.acts(token))),
            )
            for token in known
        ]
        print_table([("NAME", "ALLOWS", "JOBS", "UNTIL", "STATE", "ACTS"), *rows])
    else:
        print_line(f"No program acts without asking. To allow one: {_EXAMPLES['add']}")
    return 0


def _shown(token: AccessToken, now: float) -> dict[str, object]:
    """Return a token without the digest of its secret."""
    return {
        "name": token.name, "verbs": token.verbs, "jobs": token.jobs, "made": token.made,
        "ends": token.ends, "state": token.state(now), "acts": len(access_files.acts(token)),
    }  # fmt: skip


def _list_acts(args: Namespace) -> int:
    named = [token for token in access_files.access_tokens() if token.name == args.name]
    if not named:
        raise NotFound(phrase("no access token is called {name}. See: gpudeck token",
                              name=args.name))  # fmt: skip
    acts = [act for token in named for act in access_files.acts(token)]
    if args.json:
        print_json([{"time": act.time, "program": act.program, "order": act.order,
                     "outcome": act.outcome, "made": act.made} for act in acts])  # fmt: skip
    elif acts:
        rows = [(clock(act.time), act.program, act.order, act.outcome) for act in acts]
        print_table([("TIME", "PROGRAM", "ORDER", "OUTCOME"), *rows])
    else:
        print_line(f"Nothing was done with {args.name} yet.")
    return 0
