"""Readings become annotations of throttling and Xid events."""

from __future__ import annotations

from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.telemetry.incidents import IncidentDetector


def throttled(*reasons: str) -> Text:
    return phrase("Throttled: {rest}", rest=joined(map(Text, reasons)))


def spans(*readings: tuple[float, str]) -> dict[float, tuple[float | None, str]]:
    """Return the final end and text of each span, by its start."""
    incidents, known = IncidentDetector(), {}
    for time, throttle in readings:
        for a in incidents.add(Reading("GPU-0", time, {}, texts={"throttle": throttle})):
            assert (a.kind, a.device) == ("throttle", "GPU-0")
            known[a.time] = a.until, a.text
    return known


def test_throttling_is_a_span_that_short_pauses_do_not_end() -> None:
    readings = [
        (0.0, "none"),
        (1.0, "power limit"),
        (2.0, "idle"),
        (3.0, "power limit"),
        (4.0, "none"),
        (20.0, "none"),
        (21.0, "power limit"),
    ]
    assert spans(*readings) == {
        1.0: (3.0, throttled("power limit")),
        21.0: (None, throttled("power limit")),
    }


def test_a_span_names_all_that_held_the_clocks_down() -> None:
    assert spans(
        (1.0, "power limit"),
        (2.0, "power limit, too hot (hardware)"),
        (3.0, "power limit"),
        (30.0, "none"),
    ) == {1.0: (3.0, throttled("power limit", "too hot (hardware)"))}


def test_clocks_that_somebody_set_are_not_throttled() -> None:
    assert spans((1.0, "application clocks"), (2.0, "idle, sync boost")) == {}


def test_a_clock_that_is_set_back_ends_the_span() -> None:
    assert spans((100.0, "power limit"), (101.0, "power limit"), (50.0, "power limit")) == {
        100.0: (101.0, throttled("power limit")),
        50.0: (None, throttled("power limit")),
    }


def test_a_count_of_xid_events_that_goes_up_is_a_moment() -> None:
    incidents = IncidentDetector()
    found = []
    for time, count in ((1.0, 2.0), (2.0, 2.0), (3.0, 3.0), (4.0, 0.0), (5.0, 1.0)):
        found += incidents.add(
            Reading("GPU-0", time, {"xid_count": count}, texts={"xid": "79: fell off the bus"})
        )
    assert found == [Annotation(t, t, "xid", "79: fell off the bus", "GPU-0") for t in (3.0, 5.0)]
