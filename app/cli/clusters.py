"""cluster: which clusters jobs can be submitted to."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Annotated

import msgspec

from app.cli.output import say, say_json, table
from app.cli.usage import UsageError
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Running
from scheduler.protocol.settings import CLUSTER, ClusterSettings


def cluster(args: Namespace) -> int:
    with Client() as deck:
        if args.action == "list":
            return _list(deck, args)
        if not args.name:
            raise UsageError(
                f"which cluster? Example: gpudeck cluster {args.action} ray:lab"
                + (" http://head:8265" if args.action == "add" else "")
            )
        known = dict(deck.snapshot().settings.clusters)
        if args.action == "add":
            if args.name.startswith("ray:") and not args.address:
                raise UsageError(
                    f"where is it? Example: gpudeck cluster add {args.name} http://head:8265 --token-file ~/.ray/auth_token"
                )
            file = str(Path(args.token_file).expanduser().absolute()) if args.token_file else ""
            if file and not os.access(file, os.R_OK):
                raise UserError(
                    f"the token file {file} cannot be read; name the one that holds the cluster's token with --token-file"
                )
            deck.configure(
                clusters={
                    **known,
                    args.name: _checked(args.name, ClusterSettings(args.address or "", file)),
                }
            )
            words = f"jobs can go there with: gpudeck submit --on {args.name} -- COMMAND"
        else:
            _remove(deck, args, known)
            words = f"{args.name} is removed"
        if not args.json:
            say(words)
    return 0


def _checked(name: str, made: ClusterSettings) -> ClusterSettings:
    """Raises UsageError where the name or the address is none that a cluster can have."""
    try:
        msgspec.convert(
            {name: msgspec.to_builtins(made)},
            dict[Annotated[str, msgspec.Meta(pattern=CLUSTER)], ClusterSettings],
        )
    except msgspec.ValidationError as e:
        if "address" in str(e):
            raise UsageError(
                f"an address begins with http:// or https://, such as http://head:8265; got {made.address!r}"
            ) from e
        raise UsageError(
            f"a cluster is called ray:NAME or slurm:NAME, such as ray:lab; got {name!r}"
        ) from e
    return made


def _remove(deck: Client, args: Namespace, known: dict[str, ClusterSettings]) -> None:
    if args.name not in known:
        raise NotFound(f"no cluster is called {args.name}. See: gpudeck cluster")
    running = [
        str(job.id)
        for job in deck.jobs(1000, active=True)
        if job.spec.where == args.name and isinstance(job.state, Running)
    ]
    if running and not args.force:
        raise UserError(
            f"jobs run there ({', '.join(running)}). Wait for them, cancel them, or give them up with --force."
        )
    del known[args.name]
    deck.configure(clusters=known)


def _list(deck: Client, args: Namespace) -> int:
    snapshot = deck.snapshot()
    found = snapshot.settings.clusters
    if args.json:
        say_json(found)
    elif not found:
        say(
            "no clusters. To name one: gpudeck cluster add ray:lab http://head:8265 --token-file ~/.ray/auth_token"
        )
    else:
        troubles = {
            where: next((n for n in snapshot.notices if n.startswith(f"{where} ")), "")
            for where in found
        }
        table(
            [
                ("CLUSTER", "ADDRESS", ""),
                *((where, c.address, troubles[where] or "answers") for where, c in found.items()),
            ]
        )
    return 0
