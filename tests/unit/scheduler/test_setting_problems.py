"""A wrong value of a setting is told in words, with what may be there."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings, changed
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.verbs.registry import decoding


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"webhook": "x"}, "webhook must look like https://example.org/alerts"),
        ({"theme": "blue"}, "theme must be one of system, light, dark"),
        ({"alert_memory": "x"}, "alert_memory must be a number or off"),
        ({"fair_share": "x"}, "fair_share must be a number or off"),
        ({"telemetry_hz": "x"}, "telemetry_hz must be a number"),
        ({"telemetry_hz": 99}, "telemetry_hz must be at most 10"),
        ({"tune_attention": 3}, "tune_attention must be true or false"),
        ({"quiet_hours": "1-2"}, "quiet_hours must look like 22:00-07:00"),
        ({"report_daily": "25:00"}, "report_daily must look like 08:00"),
        ({"currency": "123456789"}, "currency may have at most 8 characters"),
        ({"clusters": {"x": {}}}, "clusters must look like ray:lab"),
        ({"clusters": {"ray:a": {"address": "x"}}}, "clusters must look like ray:lab"),
        ({"hosts": {"a b": {"address": "lab"}}}, "hosts must look like lab"),
    ],
)
def test_it_names_the_setting_and_what_may_be_there(wrong, told):
    with pytest.raises(UserError) as caught:
        changed(Settings(), wrong)
    assert str(caught.value).startswith(f"that setting cannot be used: {told}")
    assert "`" not in str(caught.value) and "$" not in str(caught.value)


def test_so_does_a_file_that_was_edited_by_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    paths.settings_file().write_text('{"theme": "blue"}')
    with pytest.raises(UserError, match="theme must be one of system, light, dark"):
        settings.load()


def test_a_number_of_a_request_that_is_out_of_range_is_named_with_its_limit() -> None:
    request = b'{"type":"set_limits","user":"ann","limits":{"gpus":10001}}'
    with pytest.raises(UserError, match=r"^gpus must be at most 10000$"):
        finish(decoding(request))
