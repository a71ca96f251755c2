"""Test the unit of the shared daemon, and that root executes nothing that others may change."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudeck.app.cli.system import system_unit
from gpudeck.app.cli.system.system_unit import check_trusted, unit_text
from gpudeck.scheduler.protocol.errors import UserError


def test_the_unit_runs_one_daemon_for_all(tmp_path):
    text = unit_text()
    assert 'Environment="GPUDECK_HOME=/var/lib/gpudeck"' in text and "GPUDECK_SYSTEM=1" in text
    if shutil.which("systemd-analyze"):
        file = tmp_path / "gpudeck.service"
        file.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", file],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="this machine lacks root, who may give files away")
def test_root_executes_nothing_that_others_may_change():
    check_trusted(Path("/usr/bin/env").resolve())
    place = Path("/opt/gpudeck-test-trust")
    place.mkdir()
    try:
        check_trusted(place)
        place.chmod(0o775)
        with pytest.raises(UserError, match="who would become root"):
            check_trusted(place)
        place.chmod(0o755)
        os.chown(place, 65534, 65534)
        with pytest.raises(UserError, match="other users than root"):
            check_trusted(place)
    finally:
        place.rmdir()


def test_only_root_installs_it(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    for action in (system_unit.install, system_unit.uninstall):
        with pytest.raises(UserError, match="only root"):
            action()
