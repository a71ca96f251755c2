"""Run the processes of GPU Deck so that they note their sections of a way.

    python -P tests/walks/processes.py FOLDER -P -m gpudeck.scheduler.daemon

FOLDER holds the notes. What the process starts by its interpreter notes as well.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.walks.noting import Section, note_section

PROCESSES = {
    "tests.walks.window": "window",
    "gpudeck.scheduler.daemon": "daemon",
    "gpudeck.scheduler.devices.probe": "probe",
    "runner.py": "runner",
}
SECTIONS = "sections.json"


def run(folder: Path, arguments: list[str]) -> None:
    """Run what an interpreter with these arguments would run."""
    while arguments[0] in ("-P", "-S", "-E"):
        del arguments[0]
    by_name = arguments[0] == "-m"
    target, *rest = arguments[by_name:]
    sections = json.loads((folder / SECTIONS).read_text())
    sections = {name: Section(**section) for name, section in sections.items()}
    name = PROCESSES.get(target if by_name else Path(target).name, "")
    sys.executable = str(folder / "python")
    if name == "window" and "feed" in sections:
        note_feed(sections["feed"], folder)
    if name in sections:
        sys.setprofile(note_section(sections[name], folder / f"{name}-{os.getpid()}.json"))
    sys.argv = [target, *rest]
    if by_name:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(target, run_name="__main__")


def note_feed(section: Section, folder: Path) -> None:
    """Have the thread that receives snapshots note its section."""
    from gpudeck.app.link.snapshots import SnapshotFeed

    run = SnapshotFeed.run

    def noting(self: Any) -> None:
        sys.setprofile(note_section(section, folder / f"feed-{os.getpid()}.json"))
        run(self)

    SnapshotFeed.run = noting  # type: ignore[method-assign]


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
