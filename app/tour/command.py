"""Run the tour from the command line."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli.catalog import TOUR_FOLDER
from gpudeck.app.cli.connection import daemon_status
from gpudeck.app.cli.output import print_error, print_result
from gpudeck.app.shell.main import begin
from gpudeck.app.tour.results import write_results
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.jobs import Done


def add_arguments(parser: ArgumentParser) -> None:
    """Add the folder, and the option to take pictures only."""
    parser.add_argument(
        "--out",
        default=TOUR_FOLDER,
        metavar="DIR",
        help=f"folder for pictures and reports (default: {TOUR_FOLDER})",
    )
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="only take pictures of the current state; works with a REPLAY, too",
    )


def run(args: Namespace) -> int:
    """Run the tour and print where its results are.

    Returns:
        The exit status: 1 if one of its jobs failed, or if the hardware counters contradict
        what it counted.
    """
    out = Path(args.out).absolute()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(
            phrase(
                "cannot write to {out}: {error}. Use another folder: --out",
                out=str(out),
                error=str(e.strerror),
            )
        ) from e
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    was_running = daemon_status().running
    try:
        begin()
        # both import Qt, which `begin` checks first
        from gpudeck.app.tour.session import Session
        from gpudeck.app.tour.steps import TourSteps

        with Session() as session:
            steps = TourSteps(session, out, quiet=args.json)
            if args.pictures:
                pictures = steps.take_pictures()
                print_result(args, pictures, f"pictures: {len(pictures)} in {out}")
                return 0
            tour = steps.run()
        write_results(out, tour)
    except OSError as e:
        raise UserError(
            phrase(
                "cannot write to {out}: {error}. Free some space, or use another folder: --out",
                out=str(out),
                error=str(e.strerror),
            )
        ) from e
    finally:
        if not was_running:
            _stop_idle_daemon()
    print_result(
        args,
        tour,
        f"pictures: {len(tour.pictures)} in {out}",
        f"report:   {out / 'report.md'}; with charts: report.html and report.pdf",
        f"results:  {out / 'results.json'}",
    )
    if tour.live.disagreement:
        print_error(tour.live.disagreement)
    done = all(isinstance(job.state, Done) for job in (tour.job, tour.training))
    return 0 if done and not tour.live.disagreement else 1


def _stop_idle_daemon() -> None:
    """Stop the daemon that the tour started, unless it has got other work meanwhile."""
    try:
        with Client(start=False) as client:
            if not client.jobs(active=True):
                client.stop_daemon()
    except DaemonGone:
        pass  # it never came up
