"""Read by every Python that a test starts with this folder on its path: in the probe, NVML
answers from recordings, as a file says.

The daemon, the probe and pynvml's structures are real; see `RecordedNvml.follow` for the file,
which RECORDED_NVML names.
"""

import importlib
import os
import sys
from pathlib import Path

if (
    _file := os.environ.get("RECORDED_NVML")
) and "gpudeck.scheduler.devices.probe" in sys.orig_argv:
    from tests.unit.scheduler.recorded_nvml import RecordedNvml

    _nvml = RecordedNvml()
    _nvml.install()
    _nvml.follow(Path(_file))
if (
    "gpudeck.scheduler.daemon" in sys.orig_argv
):  # what takes seconds for people's sake takes less here
    for _module, _name, _value in (
        ("gpudeck.scheduler.background.children", "BACKOFF_S", (0.1,)),
        (
            "gpudeck.scheduler.devices.supervisor",
            "SILENCE_S",
            float(os.environ.get("EDGE_SILENCE_S", "5")),
        ),
        ("gpudeck.scheduler.devices.supervisor", "PATIENCE_S", 0.5),
        ("gpudeck.scheduler.services.polling", "LINGER_S", 0.5),
        ("gpudeck.scheduler.services.polling", "CHECK_S", 0.1),
        ("gpudeck.scheduler.telemetry.monitor", "CALM_HZ", 2.0),
        ("gpudeck.scheduler.services.end_process", "GRACE_S", 0.3),
    ):
        assert hasattr(importlib.import_module(_module), _name)
        setattr(importlib.import_module(_module), _name, _value)
