"""Of the commands that look after GPU Deck."""

from __future__ import annotations

from argparse import ArgumentParser

from app.cli.arguments import types


def daemon(made: ArgumentParser) -> None:
    made.add_argument("action", choices=("start", "stop", "status"), metavar="start|stop|status")
    made.add_argument(
        "--source",
        metavar="SOURCE",
        help="with start: what to watch from now on: auto, nvml, cpu, replay:FILE, replay:FILE*COPIES",
    )


def cluster(made: ArgumentParser) -> None:
    made.add_argument(
        "action",
        choices=("list", "add", "remove"),
        nargs="?",
        default="list",
        metavar="list|add|remove",
    )
    made.add_argument("name", nargs="?", metavar="KIND:NAME", help="such as ray:lab or slurm:hpc")
    made.add_argument(
        "address", nargs="?", metavar="ADDRESS", help="of Ray: its dashboard, e.g. http://head:8265"
    )
    made.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="holds the cluster's token; nobody else may read it (chmod 600)",
    )
    made.add_argument(
        "--force",
        action="store_true",
        help="remove it although jobs run there; nobody will know how they end",
    )


def clean(made: ArgumentParser) -> None:
    from app.cli.clean import LAST
    from assistant.housekeeping import KINDS
    from assistant.housekeeping.findings import SCAN_S

    made.add_argument(
        "--kind", type=types.kinds, default=(), metavar="KIND,...", help=", ".join(KINDS)
    )
    made.add_argument(
        "--seconds",
        type=types.positive,
        default=SCAN_S,
        metavar="N",
        help=f"look no longer than so (default: {SCAN_S:.0f})",
    )
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument(
        "--undo",
        nargs="?",
        const=LAST,
        metavar="ID",
        help="put back what a clean-up moved (default: the last one)",
    )
    made.add_argument(
        "--empty",
        action="store_true",
        help="delete for good what clean-ups moved to the trash; nothing else there",
    )
    made.add_argument(
        "--older-than",
        type=types.seconds,
        default=0.0,
        metavar="TIME",
        help="with --empty: only what went there so long ago; unasked",
    )


def doctor(made: ArgumentParser) -> None:
    made.add_argument(
        "--repair",
        action="store_true",
        help="where the store is damaged: put one of all that is whole in its place",
    )
