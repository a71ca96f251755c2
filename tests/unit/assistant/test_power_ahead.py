"""The energy to come rests on powers that were read."""

from unittest.mock import Mock

from gpudeck.assistant.query.devices import _energy_ahead
from gpudeck.assistant.query.request import Query
from tests.unit.assistant.examples import CPU_STATE, NOW, replayed


def test_a_forecast_names_the_power_of_now_only_where_it_was_read() -> None:
    query = Query("devices", "energy", ahead=3600.0)
    unknown = _energy_ahead(Mock(), query, [CPU_STATE], (), NOW)
    assert [row.values for row in unknown.rows] == [(None,)]
    assert not any(note.kind == "ahead" for note in unknown.notes)
    known = _energy_ahead(Mock(), query, [CPU_STATE, replayed(0)], (), NOW)
    assert [note.values for note in known.notes if note.kind == "ahead"] == [(657.3, 3600.0)]
