"""Diagnostics contain what a bug report needs, and no secrets."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.app.cli.main import main
from gpudeck.app.settings.diagnostics import diagnostics, scrub
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots

SECRETS = [
    "hf_" + "aB3dE5gH7jK9mN1pQ3sT",
    "ghp_0123456789abcdefghijABCDEFGHIJ123456",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    "3f786850e387550fdab836ed7e6dc881de23001b",
    "AKIAIOSFODNN7EXAMPLE",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "started with {} as it is",
        "HF_TOKEN={}",
        '"api_key": "{}",',
        "https://hooks.example.org/{}/x?y={}",
    ],
)
def test_tokens_are_hidden_everywhere(secret: str, form: str) -> None:
    assert secret.split(".", maxsplit=1)[0] not in scrub(form.format(secret, secret))


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2",
        "Authorization: Bearer abc",
        "mail ada@example.org",
        "from 192.168.17.4",
        "passwd='a b'",
    ],
)
def test_passwords_and_addresses_are_hidden(line: str) -> None:
    hidden = scrub(line)
    assert not [
        word
        for word in ("hunter2", "abc", "ada", "example.org", "192.168", "a b")
        if word in hidden
    ]


def test_harmless_text_is_kept() -> None:
    line = (
        'File "scheduler/store/store.py", line 211, in _transaction: NVMLError_GpuIsLost at'
        " 2026-11-21 15:00:00, CUDA 13.0, 80GB HBM3"
    )
    assert scrub(line) == line


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789", min_size=24, max_size=64).filter(  # noqa: E501
    lambda t: any(c.isdigit() for c in t) and any(c.isalpha() for c in t)))  # fmt: skip
def test_a_long_word_with_digits_is_hidden(word: str) -> None:
    assert word not in scrub(f"got {word}, then failed")


def test_paths_and_names_are_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "deck"))
    monkeypatch.setenv("LOGNAME", "adalovelace")
    text = scrub(f"{Path.home()}/work {tmp_path}/deck/daemon.log /home/grace/x adalovelace")
    assert text == "~/work GPUDECK_HOME/daemon.log /home/***/x ***"
    assert getpass.getuser() == "adalovelace"


def test_the_text_has_versions_devices_settings_and_logs(home: Path) -> None:
    paths.ensure(home)
    paths.daemon_log().write_text(
        "\n".join(f"line {i}" for i in range(500)) + "\nOSError: token=s3cret\x1b[31m\n"
    )
    settings = msgspec.structs.replace(
        Settings(), webhook="https://hooks.example.org/s3cret", telemetry_hz=5.0
    )
    text = diagnostics(snapshots.cpu_snapshot(settings=settings, notices=("the disk is full",)))
    for needed in (
        "GPU Deck",
        "Python 3",
        "torch",
        "AMD EPYC 9B14",
        "telemetry_hz = 5.0",
        "webhook = ***",
        "the disk is full",
        "line 499",
    ):
        assert needed in text
    assert "not available: temp: the kernel exposes no temperature sensor here" in text
    assert "line 3\n" not in text
    for hidden in (
        "s3cret",
        "hooks.example.org",
        str(home),
        socket.gethostname() if len(socket.gethostname()) > 9 else "s3cret",
    ):
        assert hidden not in text


def test_diagnostics_work_without_starting_a_daemon(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnostics"]) == 0
    out = capsys.readouterr().out
    assert "does not answer" in out
    assert not paths.daemon_lock().exists()
