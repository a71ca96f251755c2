"""Read the machine's disks, networks, cores and sensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from gpudeck.scheduler.protocol.absence import Absence, Unavailable
from gpudeck.scheduler.protocol.devices import Part

FIELDS_OF = {"disk": ("disk_read", "disk_write"), "network": ("net_rx", "net_tx")}
_BLOCK, _NET = Path("/sys/block"), Path("/sys/class/net")


class _ByteCounts(NamedTuple):
    """Hold the bytes since the machine started, by name: (in, out)."""

    disks: dict[str, tuple[float, float]]
    networks: dict[str, tuple[float, float]]


class IoMeter:
    """Measure bytes a second of real disks and networks.

    The traffic of a loop device, a bridge or a volume is counted at the hardware behind it.
    """

    def __init__(self) -> None:
        self._before: tuple[float, _ByteCounts] | None = None

    def read(self, now: float) -> tuple[list[Part], list[Part]] | Unavailable:
        """Return the means since the last call, of each disk and of each network."""
        counts = _counts()
        before, self._before = self._before, (now, counts)
        if before is None or now <= before[0]:
            return Unavailable("first reading")
        seconds = now - before[0]
        return (
            _rates("disk", before[1].disks, counts.disks, seconds),
            _rates("network", before[1].networks, counts.networks, seconds),
        )


def _rates(
    kind: Literal["disk", "network"],
    old: dict[str, tuple[float, float]],
    new: dict[str, tuple[float, float]],
    seconds: float,
) -> list[Part]:
    found = []
    for name, counts in new.items():
        before = old.get(name, counts)
        rates = [max(now - then, 0.0) / seconds for then, now in zip(before, counts, strict=True)]
        found.append(Part(kind, name, dict(zip(FIELDS_OF[kind], rates, strict=True))))
    return found


def _counts() -> _ByteCounts:
    disks = {} if not _BLOCK.is_dir() else psutil.disk_io_counters(perdisk=True) or {}
    networks = psutil.net_io_counters(pernic=True)
    return _ByteCounts(
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
    """Return those with hardware behind them; all where there is none, as in a container."""
    known = sorted(names)
    return [name for name in known if (folder / name / "device").exists()] or known


def add_totals(
    parts: tuple[list[Part], list[Part]] | Unavailable,
    values: dict[str, float],
    absent: dict[str, Absence],
) -> None:
    """Add the sums over all disks and over all networks as fields of a reading."""
    for i, (kind, fields) in enumerate(FIELDS_OF.items()):
        for field in fields:
            if isinstance(parts, Unavailable):
                absent[field] = parts
            elif parts[i]:
                values[field] = sum(part.values[field] for part in parts[i])
            else:
                absent[field] = Unavailable("disk" if kind == "disk" else "network")


def cores() -> Iterator[Part]:
    """Return the utilisation of each core since the last call, and its clock where it is known."""
    busy = psutil.cpu_percent(None, percpu=True)
    clocks = psutil.cpu_freq(percpu=True) or []
    for i, share in enumerate(busy):
        clock = clocks[i].current if len(clocks) == len(busy) else 0.0
        yield Part("core", f"core {i}", {"util": share} | ({"clock_cpu": clock} if clock else {}))


def sensors() -> Iterator[Part]:
    """Return all temperatures and fans that the kernel exposes."""
    for call, field in (("sensors_temperatures", "temp"), ("sensors_fans", "fan_rpm")):
        for chip, entries in getattr(psutil, call, dict)().items():
            yield from [
                Part("sensor", f"{chip} {e.label or i}", {field: float(e.current)})
                for i, e in enumerate(entries)
            ]
