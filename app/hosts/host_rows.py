"""List the other machines as rows, and test how one is to be reached. Free of Qt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from app.format.hosts import found, host_devices
from app.format.values import NOT_AVAILABLE, ago, first_capital, plural
from scheduler.protocol.settings import HostSettings
from scheduler.protocol.snapshot import HostState, Snapshot
from scheduler.protocol.units import clock

if TYPE_CHECKING:
    from app.link.call import Call


@dataclass(frozen=True)
class HostRow:
    """One machine as a row of the table."""

    key: str
    """Its name."""
    cells: tuple[str, ...]
    tooltip: str
    reachable: bool | None
    """None before the first answer."""
    load: float | None = None
    """The mean utilisation of its devices, 0 to 1; None if it is not known."""
    memory: float | None = None
    """The share of the memory of its devices that is used, 0 to 1; None if it is not known."""


def host_rows(snapshot: Snapshot) -> tuple[HostRow, ...]:
    """Return a row for each machine of the settings, with its state."""
    states = {host.name: host for host in snapshot.hosts}
    return tuple(
        _row(name, host, states.get(name), snapshot.time)
        for name, host in snapshot.settings.hosts.items()
    )


def _row(name: str, host: HostSettings, state: HostState | None, now: float) -> HostRow:
    if state is None or (state.problem is None and not state.devices):
        cells = (name, "Connecting", "", "", "", "", "", host.address, "")
        return HostRow(name, cells, f"{name} has not answered yet.", None)
    changed = ago(state.since, now)
    about = f"{clock(state.since, now)} ({changed})"
    if state.problem is not None:
        why = first_capital(state.problem)
        cells = (
            name, "Unreachable", "", "", "", changed, host_devices(state), host.address, why
        )  # fmt: skip
        text = (
            f"{name} has been unreachable since {about}: {state.problem}. "
            "Try again to see what ssh answers now."
        )
        return HostRow(name, cells, text, False)
    parts = (
        f"read with {state.how}" if state.how else "",
        "GPU Deck runs there" * bool(state.deck),
    )
    how = first_capital("; ".join(part for part in parts if part))
    load, memory, warmest = _loads(state)
    cells = (
        name, "Reachable", _percent(load), _percent(memory),
        NOT_AVAILABLE if warmest is None else f"{warmest:.0f} °C",
        changed, host_devices(state), host.address, how,
    )  # fmt: skip
    text = f"{name} has been reachable since {about}. {how}"
    return HostRow(name, cells, text, True, load, memory)


def _loads(state: HostState) -> tuple[float | None, float | None, float | None]:
    """Return the mean utilisation and the used share of the memory, and the highest °C.

    None where no device reports it.
    """
    readings = [each.reading.values for each in state.devices if each.reading is not None]
    loads = [values["util"] for values in readings if "util" in values]
    sizes = [
        (values["mem_used"], values["mem_total"])
        for values in readings
        if "mem_used" in values and values.get("mem_total")
    ]
    return (
        sum(loads) / len(loads) / 100 if loads else None,
        sum(used for used, _ in sizes) / sum(total for _, total in sizes) if sizes else None,
        max((values["temp"] for values in readings if "temp" in values), default=None),
    )


def _percent(share: float | None) -> str:
    return NOT_AVAILABLE if share is None else f"{100 * share:.0f} %"


def counts(rows: tuple[HostRow, ...]) -> str:
    """Return how many machines there are, and how many of them cannot be reached."""
    if not rows:
        return "No other machines"
    lost = sum(row.reachable is False for row in rows)
    return plural(len(rows), "machine") + (f", {lost} unreachable" if lost else "")


class ReachHost(msgspec.Struct, frozen=True):
    """Connect to a machine once, and return what it has."""

    host: HostSettings

    def carry_out(self, call: Call) -> str:
        """Describe what answered. Raises UserError with the reason where nothing did."""
        from scheduler.hosts.connection import first_moment  # only here is ssh needed

        return found(asyncio.run(first_moment(self.host)))
