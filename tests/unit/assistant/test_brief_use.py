"""The opening of a brief calls busy only what is used."""

import msgspec

from gpudeck.assistant.facts import gather
from gpudeck.assistant.writing.template import template
from gpudeck.scheduler.protocol.busy_causes import Loaded, Settling
from gpudeck.scheduler.protocol.snapshot import Busy, Reading
from tests.unit.assistant.examples import NOW, replayed, snapshot


def test_a_device_without_load_and_job_is_not_called_busy() -> None:
    loaded, other = replayed(0), replayed(1)
    values = {**(other.reading.values if other.reading else {}), "util": 0.0}
    resting = msgspec.structs.replace(
        other,
        reading=Reading(other.device.id, NOW, values),
        use=Busy(Settling(10.0, 60.0)),
    )
    working = msgspec.structs.replace(loaded, use=Busy(Loaded(99.0)))
    text = template(gather(snapshot(working, resting, jobs=()), (), {}, NOW - 600, NOW))
    opening = text.split("\n\n")[1]
    assert "GPU 0 is busy now" in opening
    assert "GPU 1" not in opening
