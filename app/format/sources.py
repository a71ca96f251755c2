"""Say in plain words where readings come from. Free of Qt."""

from __future__ import annotations

from pathlib import PurePath

from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.language.text import Message

RECORDING = "replay:"
"""What the source of a recording begins with, before its file."""
_CHOICES = {
    "auto": tr_noop("Automatic"),
    "nvml": tr_noop("NVIDIA GPUs"),
    "cpu": tr_noop("The CPU"),
}
_READERS = {
    "nvml": tr_noop("the NVIDIA driver"),
    "sysfs": tr_noop("the Linux kernel"),
}


def reader_name(source: Message) -> str:
    """Return what the readings of a snapshot come from."""
    known = _READERS.get(source) if isinstance(source, str) else None
    return tr_text(source) if known is None else tr(known)


def source_name(setting: str) -> str:
    """Return the setting `source` in words; of a recording, the name of its file."""
    if not setting.startswith(RECORDING):
        return tr(_CHOICES[setting]) if setting in _CHOICES else setting
    name, star, copies = PurePath(setting.removeprefix(RECORDING)).name.rpartition("*")
    if not star or not copies.isdigit():
        return tr("Recording {file}", file=name + star + copies)
    if int(copies) == 1:
        return tr("Recording {file}", file=name)
    return tr("Recording {file} as {n} GPUs", file=name, n=int(copies))
