"""Find the readings behind the values of an answer in the daemon's history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudeck.app.assistant.message_tree import Curve
from gpudeck.app.charts.chart_model import scale, title
from gpudeck.app.format.values import device_label
from gpudeck.assistant.facts import FIELDS_SPAN, Fact
from gpudeck.assistant.facts.devices import subject
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.fields import FIELDS

MAX_CURVES = 4
"""Curves below one answer."""
POINTS = 120
SPAN_S = 600.0
"""Length of a curve, in seconds, if the answer names no time."""


def named_readings(facts: Iterable[Fact], text: str) -> tuple[tuple[str, str], ...]:
    """Return the subject and the field of the readings in a text, in its order."""
    places: dict[tuple[str, str], int] = {}
    for fact in facts:
        parts = fact.name.split(".")
        if len(parts) < 2 or parts[1] not in FIELDS_SPAN or not isinstance(fact.value, int | float):
            continue
        # 0 % is no part of 100 %
        if found := re.search(rf"(?<![\w.]){re.escape(fact.said)}(?!\w)", text):
            key = parts[0], parts[1]
            places[key] = min(found.start(), places.get(key, found.start()))
    return tuple(sorted(places, key=places.__getitem__))[:MAX_CURVES]


def find_curves(client: Client, facts: Sequence[Fact], text: str) -> tuple[Curve, ...]:
    """Return a curve for each reading in the text of which the daemon has a history."""
    wanted = named_readings(facts, text)
    if not wanted:
        return ()
    devices = {subject(state.device): state.device for state in client.snapshot().devices}
    until = max(fact.time for fact in facts if fact.name.split(".")[0] in dict(wanted))
    named = {fact.name: fact.value for fact in facts}
    length = named.get("span.length")
    since = until - (length if isinstance(length, int | float) else SPAN_S)
    made = (
        _curve(client, devices[who], field, since, until) for who, field in wanted if who in devices
    )
    return tuple(curve for curve in made if sum(v is not None for v in curve.values) > 1)


def _curve(client: Client, device: Device, field: str, since: float, until: float) -> Curve:
    past = client.history(device.id, (field,), since, until, POINTS)
    values = tuple(
        None if value is None else value / scale(field) for value in past.columns.get(field, ())
    )
    unit = "GiB" if FIELDS[field].unit == "B" else FIELDS[field].unit
    return Curve(f"{device_label(device)} {title(field)}", unit, tuple(past.times), values)
