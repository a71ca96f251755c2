"""An H100 at NVML's edge, for tests of what stands above it."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from scheduler.devices.nvidia import errors, gpm, gpu, source
from tests.unit.scheduler.recorded_nvml import RecordedNvml


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch) -> RecordedNvml:
    for name, found in vars(pynvml).copy().items():
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, found)  # put back at the end
    recorded = RecordedNvml()
    recorded.install()
    monkeypatch.setattr(errors, "_DRIVER", Path("/nowhere"))
    for module in (gpm, gpu, source):
        monkeypatch.setattr(module, "monotonic", lambda: recorded.now)
    return recorded
