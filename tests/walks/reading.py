"""Walk from a reading of a GPU to the pixels of its tile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.protocol import paths
from tests.support import eventually
from tests.walks.deck import daemon_that_notes
from tests.walks.noting import Section, Way

CONNECTION = "serve.<locals>.connection"
SECTIONS = {
    "probe": Section(first="ReplaySource.read", last="_send"),
    "daemon": Section(
        first="Supervisor._dispatch",
        last="Peer.send",
        tasks=("Supervisor._run", "Publisher.publish", CONNECTION),
        aside=(
            # what else the readings are for
            "GpuSharing.read", "Recorder.add", "Queue.add_readings", "FaultDrain.add",
            "ReadingFlow.check_alerts", "LeaseService.add_readings", "Queue.waits_for_devices",
            "Queue.running",
            # what else a snapshot holds
            "JobQueries.overview", "LeaseService.problem", "LeaseService.device",
            "NoticeBoard.texts", "AlertService.active", "Queue.waiting", "Clusters.unavailable",
            "HostService.states", "Local.limit_problem",
            "Monitor._policy", "judge", "_quiet_hours", "_reserved",
        ),
    ),
    "feed": Section(first="Client.subscribe", last="SnapshotFeed.put"),
    "window": Section(
        first="Desktop._take",
        last="TileView.paintEvent",
        by="TileView._value",  # the place of a value that has changed
        tasks=("Desktop._take", "MainWindow._catch_up", "TileView.event"),
        aside=(
            # what else a snapshot is shown by
            "JobUsage.update", "MainWindow._take_settings", "Notifier.update", "summarize",
            "Tray.show_summary", "Tray.show_jobs", "gpus_to_free", "jobs_on_gpus",
            "suspended_jobs",
            "CompactStrip.show_summary", "Header.show_tiles",
            "Header.show_free", "free_devices", "unacknowledged", "RailButton.show_badge",
            "DashboardPage.refresh", "StatusLine.refresh", "Banner.show_notices",
            "show_tooltip",
            # the rest of the tile
            "History.update", "MainWindow._load", "TileView._paint_load", "_holder", "is_free",
        ),
    ),
}  # fmt: skip


def write_changing_trace(file: Path) -> None:
    """Record a GPU all of whose values change from second to second."""
    header, moments = trace.read(paths.assets() / "h100.trace.gz")
    ordered = sorted(moments, key=lambda moment: moment.readings[0].values["util"])
    with trace.TraceWriter(file, header.devices, 0.0, {}) as out:
        for at in range(60):
            out.add(msgspec.structs.replace(ordered[-(at % 2)], time=float(at)))


def reading_to_pixel() -> dict[str, Way]:
    """Show a GPU in a window until its tile is painted again."""
    with TemporaryDirectory() as place:
        file = Path(place) / "changing.trace.gz"
        write_changing_trace(file)
        return _reading_to_pixel(f"replay:{file}")


def _reading_to_pixel(source: str) -> dict[str, Way]:
    with daemon_that_notes(SECTIONS, source) as notes:
        shown = notes.folder / "shown"
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "WALK_SHOWN": str(shown)}
        command = [notes.python, "-P", "-m", "tests.walks.window"]
        with subprocess.Popen(command, env=environment) as window:
            try:
                eventually(shown.exists)
                notes.begin()
                return notes.sections()
            finally:
                window.terminate()
