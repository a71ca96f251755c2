"""List, add and remove the clusters that jobs can be submitted to."""

from __future__ import annotations

import os
import re
import shutil
from argparse import ArgumentParser, Namespace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from gpudeck.app.cli.arguments import add_action
from gpudeck.app.cli.output import UsageError, print_line, print_list
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Running
from gpudeck.scheduler.protocol.settings import ADDRESS, CLUSTER, ClusterSettings
from gpudeck.scheduler.protocol.wait_texts import render

_ADD_EXAMPLE = "gpudeck cluster add ray:lab http://head:8265 --token-file ~/.ray/auth_token"
_EXPOSED = (
    "Warning: the token is sent unencrypted, and everybody on the network path can read it. "
    "Use an address with https://, or an SSH tunnel to a local port."
)
SLURM_COMMANDS = ("sbatch", "squeue", "scancel")
"""The commands by which a Slurm cluster is reached."""
_EXAMPLES = {"add": _ADD_EXAMPLE, "remove": "gpudeck cluster remove ray:lab"}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the cluster, and how to reach it."""
    add_action(parser, "add", "remove")
    add = parser.add_argument
    add("name", nargs="?", metavar="KIND:NAME", help="e.g. ray:lab or slurm:hpc")
    add(
        "address",
        nargs="?",
        metavar="ADDRESS",
        help="address of Ray's dashboard, e.g. http://head:8265",
    )
    add(
        "--token-file",
        metavar="FILE",
        help="file with the cluster's token, which only you may be able to read (chmod 600)",
    )
    add(
        "--force",
        action="store_true",
        help="remove the cluster even if jobs run there; you will not learn how they end",
    )


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    with Client() as client:
        if args.action == "list":
            _list(client, args)
            return
        if not args.name:
            raise UsageError(f"missing cluster. Example: {_EXAMPLES[args.action]}")
        known = dict(client.snapshot().settings.clusters)
        if args.action == "add":
            cluster = _cluster(args)
            client.configure(clusters={**known, args.name: cluster})
            text = f"Submit a job to it with: gpudeck submit --on {args.name} -- COMMAND"
            if _exposes_token(cluster):
                text = f"{_EXPOSED}\n{text}"
        else:
            _check_removable(client, args, known)
            del known[args.name]
            client.configure(clusters=known)
            text = f"{args.name} was removed."
    if not args.json:
        for line in text.splitlines():
            print_line(line)


def _cluster(args: Namespace) -> ClusterSettings:
    """Return the cluster that the arguments describe, or raise an error if it is invalid."""
    if args.name.startswith("ray:") and not args.address:
        raise UsageError(f"missing address. Example: {_ADD_EXAMPLE}")
    if args.name.startswith("slurm:") and (missing := _missing_commands()):
        raise UserError(
            phrase(
                "Slurm is not on this machine: {names} cannot be found in PATH. Add "
                "the cluster on a machine from which jobs are submitted to it",
                names=", ".join(missing),
            )
        )
    file = str(Path(args.token_file).expanduser().absolute()) if args.token_file else ""
    if file and not os.access(file, os.R_OK):
        raise UserError(
            phrase(
                "cannot read the token file {file}. Name another one with --token-file",
                file=str(file),
            )
        )
    if not re.search(ADDRESS, args.address or ""):
        raise UsageError(
            "an address begins with http:// or https://, as in http://head:8265; "
            f"got {args.address!r}"
        )
    if not re.search(CLUSTER, args.name):
        raise UsageError(
            f"a cluster is named ray:NAME or slurm:NAME, as in ray:lab; got {args.name!r}"
        )
    return ClusterSettings(args.address or "", file)


def _missing_commands() -> list[str]:
    return [name for name in SLURM_COMMANDS if shutil.which(name) is None]


def _exposes_token(cluster: ClusterSettings) -> bool:
    """Return True if the cluster's token is sent over a network without encryption."""
    address = urlsplit(cluster.address)
    if not cluster.token_file or address.scheme != "http" or address.hostname == "localhost":
        return False
    try:
        return not ip_address(address.hostname or "").is_loopback
    except ValueError:  # the name of another machine
        return True


def _check_removable(client: Client, args: Namespace, known: dict[str, ClusterSettings]) -> None:
    """Raise an error if the cluster is unknown, or if its jobs would be lost."""
    if args.name not in known:
        raise NotFound(phrase("there is no cluster {name}. See: gpudeck cluster", name=args.name))
    running = [
        str(job.id)
        for job in client.jobs(1000, active=True)
        if job.spec.where == args.name and isinstance(job.state, Running)
    ]
    if running and not args.force:
        raise UserError(
            phrase(
                "jobs are running there ({names}). Wait for them, cancel them, or "
                "abandon them with --force",
                names=", ".join(running),
            )
        )


def _list(client: Client, args: Namespace) -> None:
    snapshot = client.snapshot()
    clusters = snapshot.settings.clusters
    rows = []
    for name, cluster in clusters.items():
        reason = snapshot.unavailable.get(name)
        state = render(reason, snapshot.time) if reason else "reachable"
        if _exposes_token(cluster):
            state += "; its token is sent unencrypted"
        rows.append((name, cluster.address, state))
    print_list(
        args, clusters, ("CLUSTER", "ADDRESS", "STATE"), rows,
        f"No clusters. Add one with: {_ADD_EXAMPLE}",
    )  # fmt: skip
