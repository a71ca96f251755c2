"""Run a daemon whose processes note their sections of a way."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.support import eventually, state_folder
from tests.walks.noting import BEGUN, ROOT, Section, Way
from tests.walks.processes import SECTIONS

SCRIPT = Path(__file__).with_name("processes.py")
FAKE_GPU = ROOT / "tests" / "integration" / "fake_gpu"


class Notes:
    """Give access to what processes note."""

    def __init__(self, folder: Path, sections: Mapping[str, Section]) -> None:
        self.folder, self._names = folder, list(sections)
        written = {name: asdict(section) for name, section in sections.items()}
        (folder / SECTIONS).write_text(json.dumps(written))
        words = shlex.join([sys.executable, "-P", str(SCRIPT), str(folder)])
        self.python = folder / "python"
        """Runs what Python would run, and notes."""
        self.python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.python.chmod(0o700)

    def begin(self) -> None:
        """Have sections begin from now on."""
        (self.folder / BEGUN).touch()

    def sections(self) -> dict[str, Way]:
        """Wait until all sections have ended, and return what each has noted."""
        return {name: self._section(name) for name in self._names}

    def _section(self, name: str) -> Way:
        try:
            file = eventually(lambda: next(self.folder.glob(f"{name}-*.json"), None))
        except AssertionError as e:
            raise AssertionError(f"the {name} did not come to its part of the way") from e
        return Way(**json.loads(file.read_text()))


@contextmanager
def daemon_that_notes(sections: Mapping[str, Section], source: str) -> Iterator[Notes]:
    """Run a daemon and its children, which note these sections.

    Args:
        sections: By process.
        source: Of the readings; with "nvml", the machine has one GPU, whose values are fixed.
    """
    with TemporaryDirectory() as place, state_folder(Path(place) / "home"):
        settings.save(Settings(source=source, model_folder=TEMPLATE))
        notes, gpu = Path(place) / "notes", Path(place) / "gpu"
        notes.mkdir()
        gpu.mkdir()
        found = Notes(notes, sections)
        path = os.pathsep.join([str(FAKE_GPU), str(ROOT)])
        environment = {**os.environ, "FAKE_GPU": str(gpu), "PYTHONPATH": path}
        with subprocess.Popen(
            [found.python, "-P", "-m", "gpudeck.scheduler.daemon"],
            env=environment, stdout=subprocess.PIPE,
        ) as daemon:  # fmt: skip
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == b"ready\n"
            try:
                yield found
            finally:
                daemon.terminate()
