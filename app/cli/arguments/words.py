"""Of the commands of the assistant and its models."""

from __future__ import annotations

from argparse import ArgumentParser

from app.cli.arguments import types


def ask(made: ArgumentParser) -> None:
    made.add_argument("question", nargs="+", metavar="WORD")
    made.add_argument(
        "--cpu",
        action="store_true",
        help="do not wait for a GPU that is busy: let the model run on the CPU",
    )
    made.add_argument(
        "--yes", action="store_true", help="allow what is proposed, once, without being asked"
    )


def permissions(made: ArgumentParser) -> None:
    made.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="TOOL",
        help="such as 'operate cancel'; may be given several times",
    )


def serve(made: ArgumentParser) -> None:
    made.add_argument(
        "--port",
        type=types.count,
        default=8420,
        metavar="N",
        help="default: 8420; 0: any that is free",
    )
    made.add_argument(
        "--cpu",
        action="store_true",
        help="use no GPU; a request asks for this itself by the header X-GPUDeck-Device: cpu",
    )
    made.add_argument(
        "--patience",
        type=types.seconds,
        default=60.0,
        metavar="TIME",
        help="wait so long for a GPU that others use (60s)",
    )
    made.add_argument(
        "--new-token",
        action="store_true",
        help="make a new token; programs that have the old one are turned away",
    )


def report(made: ArgumentParser) -> None:
    about = made.add_mutually_exclusive_group()
    about.add_argument(
        "--job",
        type=types.count,
        metavar="JOB",
        help="on this job (default: on the last ten minutes)",
    )
    about.add_argument(
        "--since",
        type=types.moment,
        metavar="WHEN",
        help="on all since so long ago (24h), or a date (2026-11-20T14:30)",
    )
    about.add_argument("--daily", action="store_true", help="on the last 24 hours")
    made.add_argument(
        "--format", choices=("md", "html", "pdf"), help="default: as FILE ends, else md"
    )
    made.add_argument("--now", action="store_true", help="do not wait for an idle device")
    made.add_argument(
        "--cpu",
        action="store_true",
        help="neither wait for a device nor use a GPU: let the model run on the CPU",
    )
    made.add_argument("--out", metavar="FILE", help="write it to a file, charts and all")


def models(made: ArgumentParser) -> None:
    from app.cli.models import ACTIONS  # what can be done with them: loads what does it

    made.add_argument(
        "action", choices=ACTIONS, nargs="?", default="list", metavar="|".join(ACTIONS)
    )
    made.add_argument(
        "name",
        nargs="?",
        metavar="MODEL",
        help="its name in the list, its folder or file; with pull: OWNER/NAME",
    )
    made.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="with benchmark: where to time it (default: cpu)",
    )
