"""Draw the charts of so many devices that no device has a curve of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QObject, Signal

from gpudeck.app.charts.chart_card import ChartCard
from gpudeck.app.charts.chart_model import ChartModel, scale
from gpudeck.app.charts.chart_source import ChartSource, Limits
from gpudeck.app.charts.fleet_curves import FleetCurves
from gpudeck.app.format.values import NOT_AVAILABLE, device_label, format_field
from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol.snapshot import Snapshot


class FleetCharts(QObject):
    """Show a heat map of each value, with its mean and its extremes."""

    chosen = Signal(str)
    """Carries the device whose row of a heat map was clicked."""

    def __init__(self, source: ChartSource, cards: Mapping[str, ChartCard]) -> None:
        super().__init__()
        self._source, self._cards = source, cards
        self._devices: tuple[str, ...] = ()
        """The devices of the rows of the heat maps; empty while there is none."""
        for card in cards.values():
            card.view.box.clicked.connect(self._choose)

    def forget(self) -> None:
        """Note that the charts show curves now."""
        self._devices = ()

    def draw(
        self,
        chart: ChartModel,
        snapshot: Snapshot,
        limits: Limits,
        cursor: float | None,
        moments: Sequence[tuple[float, str]],
        *,
        named: bool = False,
    ) -> None:
        """Draw a chart.

        Args:
            snapshot: Has the devices to draw.
            limits: Both ends of the time axis.
            cursor: The moment of the cursor; None without one.
            moments: Times of vertical lines, and their colours.
            named: Each row has its name and its value beside it.
        """
        card, field = self._cards[chart.field], chart.field
        labels = {state.device.id: device_label(state.device) for state in snapshot.devices}
        devices, hz = tuple(labels), snapshot.settings.telemetry_hz
        fleet = self._source.fleet(field, devices, limits, card.view.pixels, hz)
        card.show_fleet(chart, limits, fleet, labels, moments, named=named)
        card.view.show_threshold(None, "")
        card.view.curves.cursor = cursor
        self._devices = devices
        moment = min(limits[1] - fleet.step / 2, snapshot.time) if cursor is None else cursor
        known = fleet.values_at(moment)
        if named:
            rows = [_number(field, known[d]) if d in known else NOT_AVAILABLE for d in devices]
            card.show_fleet_values(chart, [], rows)
        else:
            level = card.view.box.level
            pointed = None if level is None else self._device_at(level)
            card.show_fleet_values(chart, _values(field, known, labels, pointed))
        card.summary.show_text(_extremes(field, fleet, labels))

    def _device_at(self, level: float) -> str | None:
        """Return the device whose row of a heat map is at this value of the axis."""
        at = len(self._devices) - 1 - int(level // 1)
        return self._devices[at] if 0 <= at < len(self._devices) else None

    def _choose(self, level: float) -> None:
        device = self._device_at(level)
        if device is not None:
            self.chosen.emit(device)


def _values(
    field: str, values: Mapping[str, float], labels: Mapping[str, str], pointed: str | None
) -> list[str]:
    """Return the value of the device under the pointer, or else the mean and the highest value."""
    if pointed is not None:
        values = {pointed: values[pointed]} if pointed in values else {}
        return [f"{labels[device]} {_number(field, value)}" for device, value in values.items()]
    if not values:
        return []
    mean = sum(values.values()) / len(values)
    highest = _number(field, max(values.values()))
    there = [device for device, value in values.items() if _number(field, value) == highest]
    first = tr("mean {value},", value=_number(field, mean))
    if len(there) > 1:
        return [first, tr("highest {value}", value=highest)]
    return [first, tr("{device} highest, {value}", device=labels[there[0]], value=highest)]


def _extremes(field: str, fleet: FleetCurves, labels: Mapping[str, str]) -> str:
    """Return the lowest and the highest value of the visible time, and which device had it."""
    found = fleet.extremes()
    if found is None:
        return ""
    (low, _), (high, highest) = found
    return tr(
        "min {low} · max {high}, {device}",
        low=_number(field, low),
        high=_number(field, high),
        device=labels[highest],
    )


def _number(field: str, value: float) -> str:
    return format_field(field, value * scale(field)).text
