"""What readings tell of spans and moments: clocks that are held down, Xid events of the driver. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Reading

WANTED = frozenset({"none", "idle", "application clocks", "display clocks", "sync boost"})
"""What holds the clocks down because somebody asked for it, or nobody needs them."""
CALM_S = 10.0
"""Throttling that comes back within this time has not ended: at a power cap it does so many times a minute."""


@dataclass
class _Held:
    since: float
    seen: float
    reasons: tuple[str, ...]


class Incidents:
    """Of all devices."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._xids: dict[str, float] = {}

    def heard(self, reading: Reading) -> list[Annotation]:
        """What began, changed or ended with this reading."""
        return self._throttling(reading) + self._events(reading)

    def _throttling(self, reading: Reading) -> list[Annotation]:
        reasons = [r for r in reading.texts.get("throttle", "none").split(", ") if r not in WANTED]
        held = self._held.get(reading.device)
        if held is not None and not held.seen <= reading.time <= held.seen + CALM_S:
            del self._held[reading.device]
            ended = [_throttle(reading.device, held, held.seen)]
            return ended + self._throttling(reading)
        if not reasons:
            return []
        if held is None:
            held = self._held[reading.device] = _Held(reading.time, reading.time, ())
        held.seen = reading.time
        if set(reasons) <= set(held.reasons):
            return []
        held.reasons = tuple(dict.fromkeys((*held.reasons, *reasons)))
        return [_throttle(reading.device, held, None)]

    def _events(self, reading: Reading) -> list[Annotation]:
        """A count that went up since the last reading; what was counted before we looked has no time."""
        count = reading.values.get("xid_count")
        if count is None:
            return []
        before = self._xids.get(reading.device, count)
        self._xids[reading.device] = count
        text = reading.texts.get("xid", "Xid event")
        return (
            [Annotation(reading.time, reading.time, "xid", text, reading.device)]
            if count > before
            else []
        )


def _throttle(device: str, held: _Held, until: float | None) -> Annotation:
    return Annotation(
        held.since, until, "throttle", f"held down: {', '.join(held.reasons)}", device
    )
