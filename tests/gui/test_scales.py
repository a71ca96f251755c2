"""No page cuts off or overlaps a text, whatever the scale of the screen and the size of text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(scale: str, points: str, language: str = "en") -> subprocess.CompletedProcess[str]:
    """Open every page in a process of its own, since Qt reads the scale when it starts."""
    return subprocess.run(
        [sys.executable, "-m", "tests.gui.scales", "--points", points, "--language", language],
        env={**os.environ, "QT_SCALE_FACTOR": scale},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["1", "1.25", "1.5", "2"])
def test_every_page_fits_at_every_scale_and_size_of_text(scale: str) -> None:
    done = run(scale, "8,10,14,18")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"0 faults at scale {scale}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_every_page_fits_in_every_language(language: str) -> None:
    done = run("1", "10,14", language)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults at scale 1" in done.stdout
