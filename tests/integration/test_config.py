"""A file of TOML with the settings: checked without a daemon, applied, and printed again."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.settings import ClusterSettings, HostSettings, load
from tests.integration.deck import kill_daemon, ready
from tests.integration.shell import Shell
from tests.support import eventually

GOOD = """
energy_price = 0.31
currency = "CHF"
alert_idle_job = "off"
tune_attention = false

[clusters."ray:lab"]
address = "http://127.0.0.1:9"
"""


def test_a_file_is_checked_applied_and_printed(alone: Shell, tmp_path: Path) -> None:
    file = tmp_path / "gpudeck.toml"
    file.write_text(GOOD)
    assert "names 5 settings" in alone("config", "check", str(file))
    with Client() as deck:
        ready(deck).configure(quiet_hours="22:00-07:00", webhook="http://127.0.0.1:9/s3cret")
        assert "are in force" in alone("config", "apply", str(file))
        settings = deck.snapshot().settings
        assert (settings.energy_price, settings.currency, settings.tune_attention) == (
            0.31, "CHF", False,
        )  # fmt: skip
        assert settings.clusters == {"ray:lab": ClusterSettings("http://127.0.0.1:9")}
        assert settings.quiet_hours == "22:00-07:00", "what the file does not name stays"
    printed = alone("config", "show")
    assert "s3cret" not in printed and "# webhook is set and left out" in printed
    found = tomllib.loads(printed)
    assert found.items() >= tomllib.loads(GOOD).items()
    file.write_text(printed)
    alone("config", "check", str(file))


def test_a_file_whose_last_entry_is_refused_changes_nothing(alone: Shell, tmp_path: Path) -> None:
    file = tmp_path / "gpudeck.toml"
    file.write_text(GOOD + '[hosts.lab1]\naddress = "ann@127.0.0.1"\n[limits.ann]\ngpus = 2\n')
    assert "names 7 settings" in alone("config", "check", str(file))
    with Client() as deck:
        before = ready(deck).snapshot().settings
        assert "limits are for a shared daemon" in alone("config", "apply", str(file), status=1)
        assert deck.snapshot().settings == before
    kill_daemon()
    assert load() == before


def test_a_daemon_that_is_killed_meanwhile_has_stored_all_or_nothing(
    alone: Shell, tmp_path: Path
) -> None:
    hosts = {f"lab{n}": HostSettings("nobody@127.0.0.1") for n in range(60)}
    file = tmp_path / "gpudeck.toml"
    entries = (f'[hosts.{name}]\naddress = "{host.address}"\n' for name, host in hosts.items())
    file.write_text("energy_price = 0.31\n" + "".join(entries))
    with Client() as deck:
        ready(deck).configure(currency="CHF")
    stored = paths.settings_file().read_bytes()
    command = [sys.executable, "-m", "gpudeck", "config", "apply", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as apply:
        eventually(lambda: paths.settings_file().read_bytes() != stored)
        kill_daemon()
        apply.wait(60)
    settings = load()
    assert (settings.energy_price, settings.hosts) == (0.31, hosts)
    assert settings.currency == "CHF"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy_prize = 1", "no setting is called energy_prize"),
        ("energy_price = -1", "energy_price must be at least 0"),
        ('alert_memory = "often"', "alert_memory"),
        ("[limits.ann]\ncpus = 1", "limits"),
        ("[reservations.1]", "gpudeck reserve"),
        ('webhook = "https://h/"', "may be a secret"),
        ("= 1", "is no TOML"),
        ('[hosts.lab]\naddress = "-oProxyCommand=x"', "hosts"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    alone: Shell, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "gpudeck.toml"
    file.write_text(text)
    assert said in alone("config", "check", str(file), status=1)


def test_a_missing_file_and_a_wrong_use_are_named(alone: Shell, tmp_path: Path) -> None:
    assert "cannot read" in alone("config", "check", str(tmp_path / "none"), status=1)
    alone("config", "check", status=2)
    alone("config", "show", "x", status=2)
