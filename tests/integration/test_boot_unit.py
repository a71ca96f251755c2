"""Have systemd start the daemon at boot: the unit, lingering, and machines without systemd."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudeck.app.cli.connection import daemon_status
from gpudeck.app.cli.system import boot_unit
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.protocol import paths
from tests.integration.shell import Shell
from tests.support import eventually

USER = "somebody"


class Machine(NamedTuple):
    """A machine with systemd, whose commands record how they were called."""

    calls: Path
    linger: Path

    def called(self) -> list[str]:
        """Return the commands so far, and forget them."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines


def command(folder: Path, name: str, script: str) -> None:
    """Put a command into a folder of the PATH."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)


@pytest.fixture
def machine(cpu_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine on which lingering is off, and may be turned on."""
    found = Machine(tmp_path / "calls", tmp_path / "linger")
    commands, calls = tmp_path / "bin", shlex.quote(str(found.calls))
    for folder in (commands, found.linger, tmp_path / "booted"):
        folder.mkdir()
    command(commands, "systemctl", f'echo "systemctl $*" >> {calls}')
    linger = shlex.quote(str(found.linger / USER))
    command(commands, "loginctl", f'echo "loginctl $*" >> {calls}; touch {linger}')
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.setattr(unit, "BOOTED", tmp_path / "booted")
    monkeypatch.setattr(boot_unit, "LINGER", found.linger)
    return found


def test_install_enables_the_unit_and_uninstall_takes_it_back(
    machine: Machine, alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # systemd, which starts no daemon here, counts as unable to
    command(tmp_path / "bin", "systemctl", "echo 'no bus' >&2; exit 1")
    out = alone("daemon", "install")
    assert "Lingering was turned on" in out
    assert "could not be started now (no bus)" in out
    assert machine.called() == [f"loginctl enable-linger {USER}"]
    file = unit.unit_file()
    link = file.parent / "default.target.wants" / "gpudeck.service"
    assert link.resolve() == file.resolve()
    assert daemon_status().answers  # by another way
    assert "Lingering is on" in alone("daemon", "install")
    assert machine.called() == []
    with monkeypatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(tmp_path / "other"))
        assert "the daemon of another state folder" in alone.fails("daemon", "install")
        alone("daemon", "stop")
    calls = shlex.quote(str(machine.calls))
    command(tmp_path / "bin", "systemctl", f'echo "systemctl $*" >> {calls}')
    assert "was removed" in alone("daemon", "uninstall")
    assert machine.called() == [
        "systemctl --user stop gpudeck.service",
        "systemctl --user daemon-reload",
    ]
    assert not file.exists() and not link.is_symlink()
    assert "nothing was removed" in alone.fails("daemon", "uninstall")


def test_nothing_is_installed_where_lingering_cannot_be_turned_on(
    machine: Machine, alone: Shell, tmp_path: Path
) -> None:
    command(tmp_path / "bin", "loginctl", "echo 'Access denied' >&2; exit 1")
    line = alone.fails("daemon", "install")
    assert "(Access denied)" in line
    assert line.endswith(f"Ask an administrator for: loginctl enable-linger {USER}\n")
    assert not unit.unit_file().exists()


def test_without_systemd_the_line_for_cron_starts_the_daemon(
    machine: Machine, alone: Shell, tmp_path: Path
) -> None:
    (tmp_path / "booted").rmdir()
    line = alone.fails("daemon", "install")
    assert machine.called() == []
    alone("daemon", "stop")
    assert not daemon_status().running
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}  # as cron gives it
    subprocess.run(
        ["/bin/sh", "-c", line.partition("@reboot ")[2]], env=bare, cwd="/", check=True, timeout=60
    )
    assert daemon_status().answers


def test_a_percent_sign_in_the_line_for_cron_does_not_end_it(
    machine: Machine, alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "booted").rmdir()
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "100% mine"))
    assert f"GPUDECK_HOME='{tmp_path}/100\\% mine' " in alone.fails("daemon", "install")
    alone("daemon", "stop")


def test_a_command_that_needs_the_daemon_starts_it_through_its_unit(
    machine: Machine, alone: Shell, tmp_path: Path, cpu_home: Path
) -> None:
    words = [sys.executable, "-P", "-m", "gpudeck.scheduler.daemon"]
    start = f"BY_UNIT=1 setsid {shlex.join(words)} > /dev/null 2>&1 &"
    script = f'[ "$2" = start ] && {{ {start} }}; echo "systemctl $*" >> {machine.calls}'
    command(tmp_path / "bin", "systemctl", script)
    alone("daemon", "install")
    alone("daemon", "stop")
    machine.called()
    alone("jobs")
    assert machine.called() == ["systemctl --user start gpudeck.service"]
    environment = Path(f"/proc/{daemon_status().pid}/environ").read_bytes()
    assert b"BY_UNIT=1" in environment.split(b"\0")
    alone("daemon", "stop")
    command(tmp_path / "bin", "systemctl", "echo 'no bus' >&2; exit 1")
    alone("jobs")
    assert "gpudeck.service did not start the daemon: no bus" in paths.daemon_log().read_text()


@pytest.mark.parametrize("version", [253, 254])
def test_the_daemon_has_a_group_apart_from_its_jobs_where_systemd_can(
    machine: Machine, tmp_path: Path, version: int
) -> None:
    command(tmp_path / "bin", "systemctl", f"echo 'systemd {version} ({version}.1-2)'")
    assert ("DelegateSubgroup=daemon\n" in boot_unit.unit_text()) == (version == 254)


@pytest.mark.parametrize("name", ["home", 'a "b" %c\\d', "ä$HOME"])
def test_systemd_accepts_the_unit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / name))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "gpudeck.service"
    file.write_text(boot_unit.unit_text())
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_SYSTEMD = "/lib/systemd/systemd"
_SCENARIO = f"""
mount -t tmpfs none /run && mkdir -p /run/systemd/system /run/user/0 && chmod 700 /run/user/0
mount -t tmpfs none /var/lib/systemd && mkdir /var/lib/systemd/linger
touch /var/lib/systemd/linger/root
for tree in systemd unified .; do
    group=/sys/fs/cgroup/$tree
    [ -w $group/cgroup.procs ] && mkdir -p $group/gpudeck-test && echo $$ > $group/gpudeck-test/cgroup.procs
done
export XDG_RUNTIME_DIR=/run/user/0
{_SYSTEMD} --user > "$FOLDER/systemd.log" 2>&1 &
systemd=$!
until systemctl --user is-system-running 2>/dev/null | grep -q running; do sleep 0.2; done
deck() {{ "$PYTHON" -m gpudeck "$@"; }}
fact() {{ echo "$1=$(eval "$2" 2>&1 | tr '\\n' ' ')" >> "$FOLDER/facts"; }}
alive() {{ kill -0 "$(cat "$FOLDER/job")" && echo yes || echo no; }}
deck daemon install
deck submit -- sh -c 'echo $$ > "$0/job"; exec sleep 600' "$FOLDER"
until [ -s "$FOLDER/job" ]; do sleep 0.1; done
fact main 'systemctl --user show -P MainPID gpudeck'
fact pid 'cat "$GPUDECK_HOME/daemon.lock"'
systemctl --user stop gpudeck
fact stopped 'deck daemon status'
fact job_after_stop alive
systemctl --user start gpudeck
until deck daemon status; do sleep 0.2; done
kill -9 "$(cat "$GPUDECK_HOME/daemon.lock")"
until systemctl --user is-active gpudeck && deck daemon status; do sleep 0.5; done
fact job_after_crash alive
fact status 'deck jobs 1 | head -1'
deck daemon uninstall
fact active 'systemctl --user is-active gpudeck'
fact job_after_uninstall alive
deck cancel 1
deck daemon stop
kill $systemd
wait $systemd
for tree in systemd unified .; do
    group=/sys/fs/cgroup/$tree
    [ -d $group/gpudeck-test ] && echo $$ > $group/cgroup.procs
    [ -d $group/gpudeck-test ] && find $group/gpudeck-test -depth -type d -exec rmdir {{}} +
done
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0 or not Path(_SYSTEMD).exists() or not shutil.which("systemctl"),
    reason="a systemd of its own needs root, and systemd",
)
def test_a_real_systemd_runs_the_daemon_and_never_kills_a_job(
    cpu_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "facts of systemd"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FOLDER", str(folder))
    monkeypatch.setenv("PYTHON", sys.executable)
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", _SCENARIO],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    lines = (folder / "facts").read_text().splitlines()
    facts = {name: value.strip() for name, _, value in (line.partition("=") for line in lines)}
    assert facts["main"] == facts["pid"], done
    assert facts["stopped"].startswith("The daemon is not running."), json.dumps(facts)
    assert facts["job_after_stop"] == facts["job_after_crash"] == "yes"
    assert facts["job_after_uninstall"] == "yes"
    assert "running" in facts["status"]
    assert facts["active"] == "inactive"
    eventually(lambda: not daemon_status().running)
