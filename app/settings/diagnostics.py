"""Collect what a bug report needs in one text without secrets."""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpudeck.app.format.sources import reader_name
from gpudeck.app.format.values import NOT_AVAILABLE, clock, memory
from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, DeviceState, Snapshot
from gpudeck.version import VERSION

if TYPE_CHECKING:
    from gpudeck.app.state import State

PACKAGES = (
    "torch",
    "triton",
    "PySide6-Essentials",
    "pyqtgraph",
    "nvidia-ml-py",
    "msgspec",
    "psutil",
    "numpy",
    "safetensors",
)
_SECRET_SETTINGS = ("webhook",)
_TAIL = 60
"""The lines at the end of each log."""
_TAIL_BYTES = 64 * 1024


HIDDEN = "***"
_NO_DAEMON = "not known: the daemon does not answer"
_RULES = (
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://\S+", re.I), r"\1://" + HIDDEN),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+\S+"), r"\1 " + HIDDEN),
    (
        re.compile(r"(?i)([\w-]*(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key"
                   r"|access[_-]?key|auth)[\w-]*[\"']?\s*[:=]\s*)"
                   r"(\"[^\"]*\"|'[^']*'|\S+)"),
        r"\1" + HIDDEN,
    ),
    (
        re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|pk|rk|xox[a-z]|npm|pypi|AKIA|ASIA)"
                   r"[_-]?[A-Za-z0-9_-]{12,}"),
        HIDDEN,
    ),
    (re.compile(r"\beyJ[\w-]+(?:\.[\w-]+)*"), HIDDEN),  # a JSON web token
    (re.compile(r"(?<![\w./-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}"), HIDDEN),
    (re.compile(r"/(home|Users)/[^/\s:'\"]+"), r"/\1/" + HIDDEN),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), HIDDEN),
)  # fmt: skip


def diagnostics(snapshot: Snapshot | None, alerts: tuple[Alert, ...] = ()) -> str:
    """Return the text; reads the ends of the logs.

    Args:
        snapshot: None if the daemon does not answer.
    """
    parts = [
        ("GPU Deck", [f"version {VERSION}", f"state folder {_with_state(paths.home())}"]),
        ("Machine", _machine()),
        ("Devices", _devices(snapshot)),
        (
            "Settings that differ from the defaults",
            _settings(snapshot.settings) if snapshot else [_NO_DAEMON],
        ),
        ("Daemon", _daemon(snapshot)),
        (
            "Alerts",
            [
                f"{clock(alert.raised)}  {_alert_state(alert)}  {alert.rule}: {alert.text}"
                for alert in alerts
            ],
        ),
    ]
    parts += [
        (f"End of {name}", _tail(paths.home() / name))
        for name in ("daemon.log", "assistant.log")
        if (paths.home() / name).exists()
    ]
    lines = [f"GPU Deck diagnostics, {time.strftime('%Y-%m-%d %H:%M %Z')}"]
    for title, body in parts:
        lines += ["", f"## {title}", *(body or ["none"])]
    return scrub("\n".join(lines)) + "\n"


def _alert_state(alert: Alert) -> str:
    return "active" if alert.cleared is None else "resolved"


def _machine() -> list[str]:
    display = os.environ.get("XDG_SESSION_TYPE") or (
        "none" if not os.environ.get("DISPLAY") else "x11"
    )
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or "none"
    return [
        f"{system}, {os.cpu_count()} logical processors",
        f"Python {sys.version.split()[0]}; display {display}; locale {locale}",
        ", ".join(_packages()),
    ]


def _packages() -> Iterator[str]:
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            yield f"{name} {metadata.version(name)}"


def _devices(snapshot: Snapshot | None) -> list[str]:
    if snapshot is None:
        return [_NO_DAEMON]
    return [line for state in snapshot.devices for line in _device(state)]


def _device(state: DeviceState) -> list[str]:
    device, reading = state.device, state.reading
    facts = ", ".join(f"{k} {v}" for k, v in device.facts.items())
    lines = [f"{device.number}: {device.name} ({device.kind}) {device.note} {facts}".rstrip()]
    if reading is None:
        return [*lines, "   not read now"]
    total = reading.values.get("mem_total")
    size = memory(total) if total else NOT_AVAILABLE
    throttle = reading.texts.get("throttle", NOT_AVAILABLE)
    lines.append(f"   {len(reading.values)} values, memory {size}, throttle: {throttle}")
    missing: dict[str, list[str]] = {}
    for field, why in reading.explained().items():
        missing.setdefault(why, []).append(field)
    absent = [(", ".join(fields), why) for why, fields in missing.items()]
    return lines + [f"   not available: {fields}: {why}" for fields, why in absent]


def _settings(settings: Settings) -> list[str]:
    return [
        f"{name} = {HIDDEN if name in _SECRET_SETTINGS else value}"
        for name, value in msgspec.structs.asdict(settings).items()
        if value != getattr(Settings(), name)
    ]


def _daemon(snapshot: Snapshot | None) -> list[str]:
    if snapshot is None:
        return ["does not answer"]
    states = [job.status for job in snapshot.jobs]
    counts = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)) or "none"
    paused = ["the queue is paused"] if snapshot.paused else []
    return [
        f"source {snapshot.source}",
        f"newest jobs: {counts}; {snapshot.waiting} wait",
        *paused,
        *(f"notice: {n}" for n in snapshot.notices),
    ]


def _tail(file: Path) -> list[str]:
    try:
        with paths.open_plain(file) as f:
            f.seek(max(f.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return f.read().decode(errors="replace").splitlines()[-_TAIL:]
    except OSError as e:
        return [f"cannot be read: {e.strerror}"]


def _with_state(folder: Path) -> str:
    return f"{folder}{'' if folder.is_dir() else ' (missing)'}"


def scrub(text: str) -> str:
    """Hide home folders, names, addresses and everything that may be a token."""
    text = text.replace(str(paths.home()), "GPUDECK_HOME").replace(str(Path.home()), "~")
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    for name in {_user(), socket.gethostname()} - {"", "root", "localhost"}:
        text = re.sub(rf"\b{re.escape(name)}\b", HIDDEN, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no entry
        return ""


def about(state: State) -> tuple[tuple[str, str], ...]:
    """Return what is shown about the program, as captions and values."""
    return (
        (tr("Version"), f"GPU Deck {VERSION}"),
        (tr("State folder"), str(paths.home())),
        (tr("Daemon"), _daemon_state(state)),
        (
            tr("Source"),
            reader_name(state.snapshot.source) if state.snapshot else tr("not known yet"),
        ),
    )


def _daemon_state(state: State) -> str:
    try:
        pid = paths.daemon_lock().read_text().strip()
    except (OSError, ValueError):
        pid = ""
    known = state.link.connected and pid.isdigit()
    text = tr(state.link.text)
    return f"{text}, PID {pid}" if known else text
