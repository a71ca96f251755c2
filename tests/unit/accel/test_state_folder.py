"""The state folder of accel is the state folder of the scheduler."""

import pytest

from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.scheduler.protocol import paths


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_STATE_HOME": "/var/tmp/elsewhere"},
        {"XDG_STATE_HOME": ""},
        {"GPUDECK_HOME": "~/deck", "XDG_STATE_HOME": "/var/tmp/elsewhere"},
        {"GPUDECK_HOME": "relative"},
    ],
)
def test_both_halves_of_the_program_use_one_folder(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPUDECK_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert state_folder() == paths.home()
