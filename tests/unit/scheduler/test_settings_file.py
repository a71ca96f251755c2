"""Test the settings file: how it is stored, read and validated."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_settings_are_the_defaults_until_they_are_saved(home: Path) -> None:
    assert settings.load() == Settings()
    changed = settings.changed(Settings(), {"source": "cpu", "telemetry_hz": 4, "theme": "dark"})
    settings.save(changed)
    assert settings.load() == changed
    assert paths.settings_file().stat().st_mode & 0o777 == 0o600
    assert [f.name for f in home.iterdir()] == ["settings.json"], "no half-written file is left"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"sourec": "cpu"}', b'{"telemetry_hz": "fast"}', b'{"telemetry_hz": 1000}', b'{"telemetry_hz": 0}',  # noqa: E501
        b'{"theme": "pink"}', b'{"idle_dwell_s": -1}', b'{"idle_dwell_s": 301}', b"\xff\xfe", b'{"source": "\xff"}', b"[" * 100_000,  # noqa: E501
    ],
)  # fmt: skip
def test_a_file_that_does_not_parse_is_reported_with_advice(home: Path, content: bytes) -> None:
    paths.ensure(home)
    paths.settings_file().write_bytes(content)
    with pytest.raises(UserError) as caught:
        settings.load()
    words = one_line(caught)
    assert str(paths.settings_file()) in words
    assert "delete it" in words


def test_a_file_that_cannot_be_read_is_reported(home: Path) -> None:
    paths.ensure(home)
    paths.settings_file().mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        settings.load()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sourec": "cpu"}, "sourec"),
        ({"telemetry_hz": "fast"}, "telemetry_hz"),
        ({"telemetry_hz": 11}, "telemetry_hz"),
        ({"telemetry_hz": float("nan")}, "telemetry_hz"),
        ({"theme": True}, "theme"),
    ],
)
def test_a_wrong_change_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named) as caught:
        settings.changed(Settings(), changes)
    one_line(caught)


def test_a_folder_that_cannot_be_written_leaves_the_old_settings(home: Path) -> None:
    settings.save(Settings(theme="dark"))
    paths.settings_file().with_suffix(".new").mkdir()
    with pytest.raises(UserError, match="unchanged"):
        settings.save(Settings(theme="light"))
    assert settings.load() == Settings(theme="dark")


def test_only_settings_that_differ_from_the_defaults_are_stored(home: Path) -> None:
    settings.save(Settings(source="cpu"))
    assert msgspec.json.decode(paths.settings_file().read_bytes()) == {"source": "cpu"}


def test_the_state_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "a"))
    assert paths.home() == paths.runtime() == tmp_path / "a"
    monkeypatch.delenv("GPUDECK_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert paths.home() == tmp_path / "gpudeck"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert paths.runtime() == paths.home(), (
        "who finds the store finds the door, also without a login session"
    )
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.home() == tmp_path / ".local/state/gpudeck"


def test_a_state_folder_that_is_a_file_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Set GPUDECK_HOME"):
        paths.ensure(tmp_path / "file")
