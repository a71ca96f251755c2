"""What flows through the machine's disks and network, core by core what is busy, and what its sensors say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from scheduler.protocol.devices import Part

_BLOCK, _NET = Path("/sys/block"), Path("/sys/class/net")
EARLY = "not known before the second reading"


class _Counts(NamedTuple):
    """Bytes since the machine started, by name: (in, out)."""

    disks: dict[str, tuple[float, float]]
    networks: dict[str, tuple[float, float]]


class Flows:
    """Bytes a second of real disks and networks: what a loop device, a bridge or a volume passes on is counted where it ends."""

    def __init__(self) -> None:
        self._before: tuple[float, _Counts] | None = None

    def read(self, now: float) -> tuple[list[Part], list[Part]] | str:
        """Means since the last call, of each disk and each network; or why there are none."""
        counts = _counts()
        before, self._before = self._before, (now, counts)
        if before is None or now <= before[0]:
            return EARLY
        seconds = now - before[0]
        return (
            _rates("disk", ("disk_read", "disk_write"), before[1].disks, counts.disks, seconds),
            _rates("network", ("net_rx", "net_tx"), before[1].networks, counts.networks, seconds),
        )


def _rates(
    kind: str,
    fields: tuple[str, str],
    old: dict[str, tuple[float, float]],
    new: dict[str, tuple[float, float]],
    seconds: float,
) -> list[Part]:
    found = []
    for name, counts in new.items():
        before = old.get(name, counts)
        rates = [max(now - then, 0.0) / seconds for then, now in zip(before, counts, strict=True)]
        found.append(
            Part(
                "disk" if kind == "disk" else "network", name, dict(zip(fields, rates, strict=True))
            )
        )
    return found


def _counts() -> _Counts:
    disks = {} if not _BLOCK.is_dir() else psutil.disk_io_counters(perdisk=True) or {}
    networks = psutil.net_io_counters(pernic=True)
    return _Counts(
        {
            name: (float(disks[name].read_bytes), float(disks[name].write_bytes))
            for name in _real(_BLOCK, disks)
        },
        {
            name: (float(networks[name].bytes_recv), float(networks[name].bytes_sent))
            for name in _real(_NET, networks.keys() - {"lo"})
        },
    )


def _real(folder: Path, names: Iterable[str]) -> list[str]:
    """Those with hardware behind them; where there is none, as in a container, all."""
    known = sorted(names)
    return [name for name in known if (folder / name / "device").exists()] or known


def totals(
    parts: tuple[list[Part], list[Part]] | str, values: dict[str, float], absent: dict[str, str]
) -> None:
    """The sums over all disks and all networks, as fields of a reading."""
    for i, fields in enumerate((("disk_read", "disk_write"), ("net_rx", "net_tx"))):
        for field in fields:
            if isinstance(parts, str):
                absent[field] = parts
            elif parts[i]:
                values[field] = sum(part.values[field] for part in parts[i])
            else:
                absent[field] = (
                    "this machine shows no disk" if i == 0 else "this machine shows no network"
                )


def cores() -> list[Part]:
    """How busy each core was since the last call, and its clock where the kernel tells it."""
    busy = psutil.cpu_percent(None, percpu=True)
    clocks = psutil.cpu_freq(percpu=True) or []
    found = []
    for i, share in enumerate(busy):
        clock = clocks[i].current if len(clocks) == len(busy) else 0.0
        found.append(
            Part("core", f"core {i}", {"util": share} | ({"clock_cpu": clock} if clock else {}))
        )
    return found


def sensors() -> list[Part]:
    """All temperatures and fans the kernel shows."""
    found = []
    for chip, entries in getattr(psutil, "sensors_temperatures", dict)().items():
        found += [
            Part("sensor", _label(chip, e.label, i), {"temp": float(e.current)})
            for i, e in enumerate(entries)
        ]
    for chip, entries in getattr(psutil, "sensors_fans", dict)().items():
        found += [
            Part("sensor", _label(chip, e.label, i), {"fan_rpm": float(e.current)})
            for i, e in enumerate(entries)
        ]
    return found


def _label(chip: str, label: str, number: int) -> str:
    return f"{chip} {label or number}"
