"""Run the `rwkv` package beside our engine, and end it when somebody needs the device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from gpudeck.assistant.host_protocol import PackageSpeed
from gpudeck.extras import missing_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

_POLL_S = 0.1


def package_speed(model: str, device: str, check: Callable[[], None]) -> PackageSpeed:
    """Return the speed of the package on a model.

    Args:
        model: Its folder or file.
        device: cpu or cuda.
        check: Raises Cancelled when the work must end.

    Raises:
        UserError: The package cannot compute this model, or is not installed.
    """
    if missing := missing_of("rwkv"):
        raise UserError(missing.text)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "gpudeck.assistant.host.rwkv_package",
        model,
        device,
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        try:
            while child.poll() is None:
                check()
                time.sleep(_POLL_S)
        finally:
            child.kill()  # does nothing to one that has ended
        assert child.stdout is not None
        lines = child.stdout.read().strip().splitlines() or ["it printed nothing"]
    if child.returncode != 0:
        raise UserError(
            phrase("the rwkv package cannot compute this model: {problem}", problem=lines[-1])
        )
    return msgspec.json.decode(lines[-1], type=PackageSpeed)
