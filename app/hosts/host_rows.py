"""List the other machines as rows, and test how one is to be reached. Free of Qt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from app.format.hosts import found, host_devices
from app.format.values import ago, first_capital, plural
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


def host_rows(snapshot: Snapshot) -> tuple[HostRow, ...]:
    """Return a row for each machine of the settings, with its state."""
    states = {host.name: host for host in snapshot.hosts}
    return tuple(
        _row(name, host, states.get(name), snapshot.time)
        for name, host in snapshot.settings.hosts.items()
    )


def _row(name: str, host: HostSettings, state: HostState | None, now: float) -> HostRow:
    if state is None or (state.problem is None and not state.devices):
        cells = (name, "Connecting", "", "", host.address, "")
        return HostRow(name, cells, f"{name} has not answered yet.", None)
    since = clock(state.since, now)
    about = f"{since} ({ago(state.since, now)})"
    if state.problem is not None:
        cells = (
            name,
            "Unreachable",
            since,
            host_devices(state),
            host.address,
            first_capital(state.problem),
        )
        text = f"{name} has been unreachable since {about}: {state.problem}"
        return HostRow(name, cells, text, False)
    parts = (
        f"read with {state.how}" if state.how else "",
        "GPU Deck runs there" * bool(state.deck),
    )
    how = first_capital("; ".join(part for part in parts if part))
    cells = (name, "Reachable", since, host_devices(state), host.address, how)
    return HostRow(name, cells, f"{name} has been reachable since {about}. {how}", True)


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
