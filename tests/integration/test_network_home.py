"""State folders on network file systems: found, told, and not shared by two machines."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import mounts, paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import kill_daemon, ready
from tests.support import state_folder

RECORDED = """\
21 27 0:19 / /proc rw,nosuid - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
36 27 0:33 / /home rw,relatime shared:14 - autofs systemd-1 rw,fd=61,pgrp=1,timeout=0
92 36 0:51 / /home/ada rw,relatime shared:51 - nfs4 filer:/vol/home/ada rw,vers=4.2,local_lock=none
93 27 0:52 / /scratch rw,relatime - lustre 10.0.0.1@o2ib:/scratch rw,flock
94 27 0:53 / /mnt/with\\040blank rw,relatime - cifs //nas/share rw
95 27 0:54 / /media/box rw,nosuid,nodev - fuse.sshfs ada@box:/ rw,user_id=1000
96 93 8:17 / /scratch/local rw,relatime - xfs /dev/sdb1 rw
97 27 0:55 / /mnt/c rw,relatime - 9p drvfs rw,aname=drvfs
98 27 0:56 / /nfs rw,relatime - nfs filer:/old rw
99 27 8:33 / /nfs rw,relatime - ext4 /dev/sdc1 rw
"""
"""Lines of four machines: a workstation, a cluster's node, a laptop and WSL."""

NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with the recorded mounts, and read it in place of the kernel's."""
    file = tmp_path / "mountinfo"
    file.write_text(RECORDED)
    monkeypatch.setattr(mounts, "MOUNTS", file)
    return file


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/ada/.local/state/gpudeck", "nfs4"),
        ("/home/adam", None),
        ("/home/ada", "nfs4"),
        ("/scratch/ada/state", "lustre"),
        ("/scratch/local/ada", None),
        ("/mnt/with blank/state", "cifs"),
        ("/media/box/state", "fuse.sshfs"),
        ("/mnt/c/Users/ada", "9p"),
        ("/nfs/state", None),  # another file system was mounted over it
        ("/var/lib/x", None),
    ],
)
def test_the_file_system_of_a_folder_is_found(
    recorded: Path, folder: str, kind: str | None
) -> None:
    assert mounts.network_type(Path(folder)) == kind


def test_this_machine_is_read_without_an_error(tmp_path: Path) -> None:
    assert mounts.network_type(tmp_path / "not there") is None


def on_nfs(file: Path, folder: Path) -> None:
    """Record that a folder is on a network file system."""
    line = f"92 27 0:51 / {folder} rw,relatime - nfs4 filer:/vol rw,vers=4.2\n"
    file.write_text(RECORDED + line)


def test_a_new_state_folder_is_local_and_an_existing_one_stays(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "var tmp"
    local.mkdir()
    monkeypatch.setattr(paths, "LOCAL", local)
    monkeypatch.delenv("GPUDECK_HOME", raising=False)
    found = {}
    for name in ("new", "old", "disk"):
        base = tmp_path / name
        (base / "gpudeck").mkdir(parents=True)
        monkeypatch.setenv("XDG_STATE_HOME", str(base))
        recorded.write_text(RECORDED)
        if name != "disk":
            on_nfs(recorded, base)
        if name == "old":
            (base / "gpudeck" / "gpudeck.sqlite").touch()
        note = paths.network_note()
        found[name] = paths.home(), note and str(note)
    new = local / f"gpudeck-{os.getuid()}"
    assert found["new"] == (
        new,
        f"the state is in {new}, as {tmp_path}/new/gpudeck is on a network file system (nfs4). "
        "To choose another folder, set GPUDECK_HOME.",
    )
    assert found["old"][0] == tmp_path / "old" / "gpudeck"
    assert "is on a network file system (nfs4), where locks" in (found["old"][1] or "")
    assert found["disk"] == (tmp_path / "disk" / "gpudeck", None)


@pytest.mark.parametrize("is_link", [True, pytest.param(False, marks=NEEDS_ROOT)])
def test_what_another_user_put_into_the_local_folder_is_not_used(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    local, base = tmp_path / "local", tmp_path / "base"
    local.mkdir()
    base.mkdir()
    theirs = local / f"gpudeck-{os.getuid()}"
    if is_link:
        theirs.symlink_to(tmp_path)
    else:
        theirs.mkdir(mode=0o700)
        os.chown(theirs, 65534, 65534)
    monkeypatch.setattr(paths, "LOCAL", local)
    monkeypatch.delenv("GPUDECK_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(base))
    on_nfs(recorded, base)
    assert paths.home() == base / "gpudeck"


_DAEMON = """if True:
    import runpy, sys
    from pathlib import Path
    from gpudeck.scheduler.protocol import mounts
    mounts.MOUNTS = Path(sys.argv[1])
    runpy.run_module("scheduler.daemon", run_name="__main__")"""


def start_on_nfs(recorded: Path, home: Path) -> subprocess.Popen[str]:
    """Start a daemon that takes its state folder for one on a network file system."""
    on_nfs(recorded, home)
    return subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(recorded)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_daemon_on_a_network_file_system_says_so_and_leaves_it_to_the_next_machine(
    recorded: Path, cpu_home: Path
) -> None:
    with start_on_nfs(recorded, cpu_home) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "ready\n"
        text = f"the state folder {cpu_home} is on a network file system (nfs4)"
        with Client(start=False) as deck:
            assert any(str(notice).startswith(text) for notice in deck.snapshot().notices)
            host, boot = (cpu_home / "daemon.host").read_text().splitlines()
            assert host == os.uname().nodename and len(boot) == 36
            deck.stop_daemon()
        _, errors = daemon.communicate(timeout=30)
        assert errors.startswith(text)
    assert not (cpu_home / "daemon.host").exists()


def test_a_state_folder_that_another_machine_did_not_give_up_is_refused(
    recorded: Path, cpu_home: Path
) -> None:
    cpu_home.mkdir(exist_ok=True)
    (cpu_home / "daemon.host").write_text("node17\nanother-boot\n")
    with start_on_nfs(recorded, cpu_home) as daemon:
        out, _ = daemon.communicate(timeout=30)
    assert out == (
        f"the daemon of the state folder {cpu_home} ran on the machine node17 and did not end "
        f"there properly. If it does not run there any more, delete {cpu_home}/daemon.host\n"
    )
    with Client() as deck:  # on a local disk, the lock alone decides
        ready(deck)


def test_the_machine_that_holds_the_lock_is_named(cpu_home: Path) -> None:
    cpu_home.mkdir(exist_ok=True)
    (cpu_home / "daemon.host").write_text("node17\nanother-boot\n")
    with (cpu_home / "daemon.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="runs on the machine node17"):
            Client()


def test_a_daemon_that_was_killed_starts_again_on_its_machine(tmp_path: Path) -> None:
    with state_folder(tmp_path / "home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            ready(deck)
        kill_daemon()
        file = home / "daemon.host"
        host, _ = file.read_text().splitlines()
        file.write_text(f"{host}\nthe boot before\n")
        recorded = tmp_path / "mountinfo"
        with start_on_nfs(recorded, home) as daemon:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "ready\n"
            with Client(start=False) as deck:
                deck.stop_daemon()
            daemon.communicate(timeout=30)
