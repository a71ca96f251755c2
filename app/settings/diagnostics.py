"""One text to paste into a bug report: what runs where, what it sees, and what went wrong. No secrets."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import msgspec

from app import __version__
from app.format.values import clock, memory
from app.settings.scrub import HIDDEN, scrub
from scheduler.protocol import paths
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import Alert, DeviceState, Snapshot

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
_SECRET = ("webhook",)
_TAIL = 60
"""Lines of a log, its last."""
_TAIL_BYTES = 64 * 1024


def diagnostics(snapshot: Snapshot | None, alerts: tuple[Alert, ...] = ()) -> str:
    """`snapshot`: None where the daemon does not answer. Reads the ends of the logs."""
    parts = [
        ("GPU Deck", [f"version {__version__}", f"state folder {_about(paths.home())}"]),
        ("Machine", _machine()),
        ("Devices", _devices(snapshot)),
        (
            "Settings that differ from the defaults",
            _settings(snapshot.settings) if snapshot else ["not known: the daemon does not answer"],
        ),
        ("Daemon", _daemon(snapshot)),
        (
            "Alerts",
            [
                f"{clock(a.raised)}  {'over' if a.cleared else 'raised'}  {a.rule}: {a.text}"
                for a in alerts
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


def _machine() -> list[str]:
    display = os.environ.get("XDG_SESSION_TYPE") or (
        "none" if not os.environ.get("DISPLAY") else "x11"
    )
    found = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    return [
        f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} logical processors",
        f"Python {sys.version.split()[0]}; display {display}; locale {os.environ.get('LC_ALL') or os.environ.get('LANG') or 'none'}",
        ", ".join(found),
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _devices(snapshot: Snapshot | None) -> list[str]:
    return (
        [line for state in snapshot.devices for line in _device(state)]
        if snapshot
        else ["not known: the daemon does not answer"]
    )


def _device(state: DeviceState) -> list[str]:
    device, reading = state.device, state.reading
    facts = ", ".join(f"{k} {v}" for k, v in device.facts.items())
    lines = [f"{device.index}: {device.name} ({device.kind}) {device.note} {facts}".rstrip()]
    if reading is None:
        return [*lines, "   not read now"]
    total = reading.values.get("mem_total")
    lines.append(
        f"   {len(reading.values)} values, memory {memory(total) if total else 'N/A'}, throttle: {reading.texts.get('throttle', 'N/A')}"
    )
    missing: dict[str, list[str]] = {}
    for field, why in reading.explained().items():
        missing.setdefault(why, []).append(field)
    return lines + [f"   N/A: {', '.join(fields)}: {why}" for why, fields in missing.items()]


def _settings(settings: Settings) -> list[str]:
    return [
        f"{name} = {HIDDEN if name in _SECRET else value}"
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


def _about(folder: Path) -> str:
    return f"{folder}{'' if folder.is_dir() else ' (missing)'}"
