"""GPUs that a fault of the hardware makes unfit for new jobs, and the faults that are known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.recovery import recovery_text

_COUNTS = {
    "ecc_uncorrected": "memory errors that could not be corrected",
    "rows_failure": "failed remapping of a memory row",
}
_ACTION = "recovery_action"


class FaultWatch:
    """Report each fault of a GPU once: a GPU that its user takes back stays in use.

    Counts, and what the driver asks for, outlive the daemon until the driver is reloaded or the GPU
    is reset, so that the known ones are kept in a file. Xid events are counted by the probe, and
    start anew with it.
    """

    def __init__(self, file: Path) -> None:
        """Read the known faults; a file that cannot be read holds none."""
        self._file = file
        try:
            self._known = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, float]])
        except (OSError, *MALFORMED):
            self._known = {}
        self._saved = self._known
        self._xids: dict[str, str] = {}

    def add(self, readings: Iterable[Reading]) -> dict[str, str]:
        """Return the new faults in words, by the id of the GPU."""
        found: dict[str, list[str]] = {}
        known, xids = dict(self._known), dict(self._xids)
        for reading in readings:
            device = reading.device
            read = {n: reading.values[n] for n in (*_COUNTS, _ACTION) if n in reading.values}
            before = known.get(device, {})
            words = [
                f"{n:.0f} {_COUNTS[name]}"
                for name, n in read.items()
                if name in _COUNTS and n > before.get(name, 0)
            ]
            if (action := read.get(_ACTION, 0)) and action != before.get(_ACTION, 0):
                words.append(f"the driver asks for {recovery_text(action)}")
            known[device] = {name: n for name, n in {**before, **read}.items() if n}
            xid = reading.texts.get("xid_fault", "")
            if xid and xid != xids.get(device):
                words.append(xid)
            xids[device] = xid
            if words:
                found[device] = words
        self._known = {device: counts for device, counts in known.items() if counts}
        self._xids = xids
        return {device: "; ".join(words) for device, words in found.items()}

    def save(self) -> None:
        """Store the known faults if they have changed. Raises UserError where that fails."""
        if self._known == self._saved:
            return
        try:
            paths.replace_file(self._file, msgspec.json.encode(self._known))
        except OSError as e:
            raise UserError(
                phrase(
                    "{file} cannot be written: {error}", file=str(self._file), error=str(e.strerror)
                )
            ) from e
        self._saved = self._known
