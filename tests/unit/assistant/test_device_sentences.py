"""Every sentence on a device is translated, as a whole."""

from __future__ import annotations

from typing import get_args

import pytest

from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.language.rendering import render
from gpudeck.scheduler.devices.nvidia.gpm import describe_method
from gpudeck.scheduler.devices.nvidia.unified import METHOD as UNIFIED
from gpudeck.scheduler.protocol import absence, busy_causes
from gpudeck.scheduler.protocol.snapshot import SLEEP_NOTICE

NOW = 1_764_000_000.0
OTHER_ABSENCES = (
    absence.Unreadable("power1_input", "EIO"),
    absence.NoCounters("ENOTSUP"),
    absence.RateUnknown((12, 1)),
)
BUSY = (
    busy_causes.HeldByJobs((1,)),
    busy_causes.HeldByJobs((1, 2, 3)),
    busy_causes.HeldByOthers(),
    busy_causes.JobWaits(3),
    busy_causes.QuietHours("22:00-06:00"),
    busy_causes.Reserved("ada", NOW),
    busy_causes.NoReading(),
    busy_causes.Removed(),
    busy_causes.Unreachable(NOW, "it was not reached yet"),
    busy_causes.Asleep(NOW),
    busy_causes.OtherProcesses(1),
    busy_causes.OtherProcesses(2),
    busy_causes.ExclusiveProgram("blender"),
    busy_causes.UtilisationUnknown(),
    busy_causes.Settling(1.0, 30.0),
)
OTHERS = (
    describe_method(calibrated=True),
    describe_method(calibrated=False),
    UNIFIED,
    SLEEP_NOTICE,
)
TRANSLATED = [language for language in LANGUAGES if language != "en"]


@pytest.mark.parametrize("language", TRANSLATED)
def test_every_sentence_on_a_device_is_translated(language: Language) -> None:
    absences = [absence.Unavailable(cause) for cause in get_args(absence.Cause)]
    sentences = [
        *map(absence.explain, (*absences, *OTHER_ABSENCES)),
        *map(busy_causes.explain, BUSY),
        *OTHERS,
    ]
    assert [text for text in sentences if render(text, language) == str(text)] == []


def test_what_is_quoted_in_a_sentence_on_a_device_stays() -> None:
    reserved = busy_causes.explain(busy_causes.Reserved("ada", NOW))
    assert "ada" in render(reserved, "de")
