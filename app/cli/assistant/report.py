"""Let the assistant write a report."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli import arguments
from gpudeck.app.cli.assistant.events import device, show_event
from gpudeck.app.cli.output import UsageError, clear_progress, print_result
from gpudeck.app.report.file import ENDINGS, check_ending, save_report
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.reports.files import FORMATS
from gpudeck.language.languages import LANGUAGES
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

_DAY_S = 86400.0
_DAYS = {"daily": 1, "weekly": 7, "monthly": 30}
"""The options that name how long a time the report covers, in days."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subject of the report, its format, and where it goes."""
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument(
        "--job",
        type=arguments.count,
        metavar="JOB",
        help="report on this job (default: on the last ten minutes)",
    )
    subject.add_argument(
        "--since",
        type=arguments.moment,
        metavar="WHEN",
        help="report on everything since this time: 24h (24 hours ago), or a date "
        "(2026-11-20T14:30)",
    )
    for name, days in _DAYS.items():
        subject.add_argument(
            f"--{name}",
            action="store_const",
            const=days * _DAY_S,
            dest="covered",
            help=f"report on the last {f'{days} days' if days > 1 else '24 hours'}",
        )
    add = parser.add_argument
    add(
        "--until",
        type=arguments.moment,
        metavar="WHEN",
        help="end the report at this time, with --since, such as a date (default: now)",
    )
    add(
        "--format",
        choices=("md", "html", "pdf"),
        help="format of the report (default: from the ending of FILE, or md)",
    )
    add(
        "--cpu",
        action="store_true",
        help="run the model on the CPU, without waiting for a device",
    )
    add(
        "--language",
        choices=LANGUAGES,
        help="language of the report (default: the setting report_language)",
    )
    add("--out", metavar="FILE", help="write the report to FILE, with its charts")


def run(args: Namespace) -> None:
    """Print the report, or write it to a file."""
    if args.until is not None and (args.since is None or args.until <= args.since):
        raise UsageError(
            "--until needs an earlier --since, e.g. --since 2026-11-20 --until 2026-11-21"
        )
    ending = _ending(args)
    answer = Assistant().report(
        args.job,
        args.since if args.covered is None else time.time() - args.covered,
        args.until,
        show_event,
        daily=args.covered == _DAY_S,
        device=device(args),
        language=args.language,
    )
    assert answer.report is not None, "the assistant answers this request with a report"
    clear_progress()
    if args.out:
        save_report(answer.report, Path(args.out), ending)
        lines = [f"The report is in {args.out}. Written by: {answer.writer}."]
    else:
        lines = FORMATS[ending](answer.report).splitlines()
    print_result(args, answer, *lines)


def _ending(args: Namespace) -> str:
    """Return the file name ending of the format.

    The file is checked here, because writing the report may take long.
    """
    if not args.out:
        ending = f".{args.format}" if args.format else ".md"
        if ending not in FORMATS:
            raise UsageError(f"a {args.format} report needs a file: --out FILE.{args.format}")
        return ending
    file = Path(args.out)
    own = file.suffix.lower()
    ending = f".{args.format}" if args.format else own
    if own in ENDINGS and own != ending:
        raise UsageError(
            f"--format {args.format} and --out {file} name two formats. Omit --format, or use "
            f"--out {file.stem}{ending}"
        )
    check_ending(file, ending)
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise UserError(
            phrase(
                "cannot write {file}. Choose a file in a folder that you can write to",
                file=str(file),
            )
        )
    return ending
