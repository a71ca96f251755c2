"""Tell what a job that runs has used of its GPUs so far, from the history of their readings."""

from __future__ import annotations

import math

from gpudeck.assistant.facts.usage import ENERGY_FIELDS, energy_facts
from gpudeck.assistant.query.readings import POINTS
from gpudeck.assistant.query.rows import Value
from gpudeck.assistant.query.shape import finite
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Running

_FIELDS = {"energy": ENERGY_FIELDS, "util": ("util",), "memory": ("mem_used",)}


def used_so_far(
    daemon: Client, state: Running, devices: dict[str, Device], field: str, now: float
) -> tuple[Value, Message]:
    """Return the energy, the mean utilisation or the most memory on a GPU, or why it is unknown.

    It is that of the GPUs, also of others that use them.

    Args:
        daemon: Whom the history is asked of.
        state: The state of the job.
        devices: The devices of this machine by their ids.
        field: A field of `jobs.Usage`.
        now: Seconds since the epoch.
    """
    if not state.devices:
        return None, phrase("it uses no GPU")
    found: list[float] = []
    for device in state.devices:
        history = daemon.history(device, _FIELDS[field], state.at, now, POINTS)
        if field == "energy":
            value = energy_facts(devices[device], history, now)[0].value if device in devices else 0
            found += [float(value)] if isinstance(value, int | float) and value else []
            continue
        (name,) = _FIELDS[field]
        highest = field == "memory" and history.high.get(name)
        column = [float(v) for v in highest or history.columns.get(name, []) if finite(v) and v]
        if column:
            found.append(max(column) if field == "memory" else math.fsum(column) / len(column))
    if len(found) < len(state.devices):
        return None, phrase("too little was read in this time")
    if field == "util":
        return math.fsum(found) / len(found), ""
    return max(found) if field == "memory" else math.fsum(found), ""
