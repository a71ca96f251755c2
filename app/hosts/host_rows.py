"""List this machine and the others as rows, and test how one is to be reached. Free of Qt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from gpudeck.app.format.hosts import found, host_devices
from gpudeck.app.format.values import NOT_AVAILABLE, ago
from gpudeck.app.language.texts import tr, tr_count, tr_noop, tr_text
from gpudeck.language.numbers import capitalized, clock
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.protocol.snapshot import HostState, Snapshot

if TYPE_CHECKING:
    from gpudeck.app.link.call import Call


LOCAL, THIS = "", tr_noop("This machine")
"""The key and the English name of the machine that the daemon runs on."""
STATES = (
    tr_noop("Connecting"),
    tr_noop("Unreachable"),
    tr_noop("Asleep"),
    tr_noop("Recorded"),
    tr_noop("Online"),
)
"""What the state of a machine may be."""


@dataclass(frozen=True)
class HostRow:
    """One machine as a row of the table."""

    key: str
    """Its name; LOCAL for this machine."""
    cells: tuple[str, ...]
    tooltip: str
    reachable: bool | None
    """None before the first answer."""
    load: float | None = None
    """The mean utilisation of its devices, 0 to 1; None if it is not known."""
    memory: float | None = None
    """The share of the memory of its devices that is used, 0 to 1; None if it is not known."""
    quiet: bool = False
    """It sleeps, or is a recording."""


def host_rows(snapshot: Snapshot) -> tuple[HostRow, ...]:
    """Return a row for this machine, and one for each machine of the settings."""
    states = {host.name: host for host in snapshot.hosts}
    others = (
        _row(name, host, states.get(name), snapshot.time)
        for name, host in snapshot.settings.hosts.items()
    )
    return (_this_machine(snapshot), *others)


def shown_host(snapshot: Snapshot, key: str) -> HostState | None:
    """Return the devices of the machine of a row; None if nothing is known of it."""
    if key == LOCAL:
        local = tuple(state for state in snapshot.devices if not state.device.host)
        return HostState(THIS, "", snapshot.time, devices=local)
    return next((host for host in snapshot.hosts if host.name == key), None)


def _this_machine(snapshot: Snapshot) -> HostRow:
    host = shown_host(snapshot, LOCAL)
    assert host is not None
    recorded = any(state.device.kind == "replay" for state in host.devices)
    about = tr("Recordings, not live readings") if recorded else ""
    return _reached(LOCAL, tr(THIS), host, "", "", about)


def _row(name: str, host: HostSettings, state: HostState | None, now: float) -> HostRow:
    if state is None or (state.problem is None and not state.devices):
        cells = (name, tr("Connecting"), "", "", "", "", "", host.address, "")
        return HostRow(name, cells, tr("{name} has not answered yet.", name=name), None)
    changed = ago(state.since, now)
    about = f"{clock(state.since, now)} ({changed})"
    if state.problem is not None:
        problem = tr_text(state.problem)
        cells = (
            name, tr("Unreachable"), "", "", "", changed, host_devices(state), host.address,
            capitalized(problem),
        )  # fmt: skip
        text = tr(
            "{name} has been unreachable since {time}: {problem}. Try again to see what ssh "
            "answers now.",
            name=name,
            time=about,
            problem=problem,
        )
        return HostRow(name, cells, text, False)
    parts = (
        tr("read with {tool}", tool=state.how) if state.how else "",
        tr("GPU Deck runs there") if state.deck else "",
    )
    how = capitalized("; ".join(part for part in parts if part))
    made = _reached(name, name, state, changed, host.address, how)
    since = tr("{name} has been reachable since {time}.", name=name, time=about)
    return replace(made, tooltip=f"{since} {made.tooltip}".strip())


def _reached(
    key: str, name: str, state: HostState, changed: str, address: str, about: str
) -> HostRow:
    """Return the row of a machine that answers, with what its devices do."""
    awake = [s for s in state.devices if s.reading is None or s.reading.asleep is None]
    devices = host_devices(state)
    if not awake:
        about = tr("Not read, so that it can sleep")
        cells = (name, tr("Asleep"), "", "", "", changed, devices, address, about)
        return HostRow(key, cells, about, True, quiet=True)
    load, memory, warmest = _loads(state)
    recorded = any(s.device.kind == "replay" for s in state.devices)
    cells = (
        name, tr("Recorded") if recorded else tr("Online"), _percent(load), _percent(memory),
        NOT_AVAILABLE if warmest is None else f"{warmest:.0f} °C",
        changed, devices, address, about,
    )  # fmt: skip
    return HostRow(key, cells, about, True, load, memory, quiet=recorded)


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
    if len(rows) < 2:
        return tr("No other machines")
    lost = sum(row.reachable is False for row in rows)
    if not lost:
        return tr_count("{n} machine", "{n} machines", len(rows))
    return tr_count(
        "{n} machine, {lost} unreachable", "{n} machines, {lost} unreachable", len(rows), lost=lost
    )


class ReachHost(msgspec.Struct, frozen=True):
    """Connect to a machine once, and return what it has."""

    host: HostSettings

    def carry_out(self, call: Call) -> str:
        """Describe what answered. Raises UserError with the reason where nothing did."""
        from gpudeck.scheduler.hosts.connection import first_moment  # only here is ssh needed

        return found(asyncio.run(first_moment(self.host)))
