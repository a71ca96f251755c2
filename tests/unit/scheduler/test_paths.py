"""The state folder: made for its owner alone, never changed where it exists, and refused where
others may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Return what reaches the disk, in order: each path, and whether its file was in place."""
    found: list[tuple[str, bool]] = []
    fsync = os.fsync

    def watched(fd: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        found.append((path, Path(path).with_suffix(".json").exists()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    return found


def test_a_replaced_file_and_its_name_are_on_disk(
    tmp_path: Path, synced: list[tuple[str, bool]]
) -> None:
    file = tmp_path / "settings.json"
    paths.replace_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path for path, _ in synced] == [str(file.with_suffix(".new")), str(tmp_path)]
    assert not synced[0][1], "the contents come first, then the name"
    assert mode(file) == 0o600


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o7777


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    assert mode(paths.ensure(tmp_path / "a" / "b")) == 0o700


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert mode(paths.ensure(tmp_path)) == 0o755


@pytest.mark.parametrize("bits", [0o1777, 0o777, 0o775, 0o702])
def test_a_folder_that_others_may_write_to_is_refused_and_not_changed(
    tmp_path: Path, bits: int
) -> None:
    tmp_path.chmod(bits)
    with pytest.raises(
        UserError, match=r"is open to others; name a folder of your own in GPUDECK_HOME$"
    ):
        paths.ensure(tmp_path)
    assert mode(tmp_path) == bits


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(UserError, match="is open to others"):
        paths.ensure(tmp_path)


def test_folders_around_the_state_folder_are_private_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        paths.ensure(tmp_path / "local" / "state" / "gpudeck")
    finally:
        os.umask(mask)
    made = [tmp_path / "local", tmp_path / "local" / "state", tmp_path / "local/state/gpudeck"]
    assert [mode(folder) for folder in made] == [0o700] * 3
