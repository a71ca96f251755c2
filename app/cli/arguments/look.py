"""Of the commands that look at the devices."""

from __future__ import annotations

from argparse import ArgumentParser

from app.cli.arguments import types
from app.cli.usage import DEFAULT_TOUR


def kill(made: ArgumentParser) -> None:
    made.add_argument("pid", type=types.count, metavar="PID", help="as gpudeck processes lists it")
    made.add_argument("--yes", action="store_true", help="do not ask")


def alerts(made: ArgumentParser) -> None:
    made.add_argument(
        "--limit", type=types.some, default=20, metavar="N", help="how many (default: 20)"
    )
    made.add_argument(
        "--acknowledge", type=types.count, metavar="ALERT", help="say that you have seen it"
    )


def export(made: ArgumentParser) -> None:
    made.add_argument("--device", metavar="N", help="its index, or its id (default: all)")
    made.add_argument(
        "--since",
        type=types.seconds,
        default=3600.0,
        metavar="TIME",
        help="so long ago, e.g. 2h or 7d (default: 1h)",
    )
    made.add_argument(
        "--until",
        type=types.seconds,
        default=0.0,
        metavar="TIME",
        help="so long ago (default: 0, now)",
    )
    made.add_argument(
        "--fields",
        default="",
        metavar="NAME,...",
        help="e.g. util,power (default: all that was read)",
    )
    made.add_argument(
        "--points",
        type=types.points,
        metavar="N",
        help="at most so many rows a device (default: all that were kept)",
    )
    made.add_argument(
        "--out", required=True, metavar="FILE", help="its name ends with .csv or .parquet"
    )


def metrics(made: ArgumentParser) -> None:
    made.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: 127.0.0.1, this machine alone)",
    )
    made.add_argument(
        "--port",
        type=types.count,
        default=9835,
        metavar="N",
        help="0: any that is free (default: 9835)",
    )
    made.add_argument(
        "--no-token", action="store_true", help="let everybody read them who reaches it"
    )
    made.add_argument(
        "--once",
        action="store_true",
        help="print them once instead, e.g. for the textfile collector of node_exporter",
    )


def tour(made: ArgumentParser) -> None:
    made.add_argument(
        "--out",
        default=DEFAULT_TOUR,
        metavar="DIR",
        help=f"where pictures and reports go (default: {DEFAULT_TOUR})",
    )
    made.add_argument(
        "--pictures",
        action="store_true",
        help="only the pictures, of what is there now; also of a REPLAY",
    )


def record(made: ArgumentParser) -> None:
    made.add_argument(
        "file",
        metavar="FILE",
        help="a new file; play it with: gpudeck daemon start --source replay:FILE",
    )
    made.add_argument("--seconds", type=types.positive, default=60.0, help="how long (default: 60)")
    made.add_argument(
        "--phases",
        metavar="P=S,...",
        help="run workloads as jobs meanwhile, e.g. idle=30,gemm=40,attention=40,copy=40,idle=30",
    )
