"""The colours of everything, in a light and a dark scheme. Free of Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scheme = Literal["light", "dark"]


@dataclass(frozen=True)
class Tokens:
    """The colours of a scheme.

    There is one accent. The other strong colours mean warm, hot, throttled, failed or succeeded.
    """

    scheme: Scheme
    window: str
    surface: str
    sunken: str
    line: str
    grid: str
    text: str
    muted: str
    accent: str
    on_accent: str
    accent_soft: str
    warm: str
    hot: str
    throttled: str
    failed: str
    succeeded: str
    series: tuple[str, ...]
    """The curves of several devices, distinguishable with every kind of colour blindness."""


LIGHT = Tokens(
    scheme="light",
    window="#f4f5f7",
    surface="#ffffff",
    sunken="#f4f5f7",
    line="#dce0e5",
    grid="#eceef1",
    text="#1b1f24",
    muted="#5b6572",
    accent="#1f5fbf",
    on_accent="#ffffff",
    accent_soft="#e4edf9",
    warm="#8a5a00",
    hot="#b54a08",
    throttled="#7438b4",
    failed="#b3261e",
    succeeded="#1d7044",
    series=("#1f5fbf", "#c14908", "#0b6142", "#ad2a71", "#107c86", "#5d4e1d", "#4b1889", "#0e1723"),
)
DARK = Tokens(
    scheme="dark",
    window="#121519",
    surface="#1a1e23",
    sunken="#121519",
    line="#2c323a",
    grid="#262b32",
    text="#e7eaee",
    muted="#9aa4b0",
    accent="#6ea8fe",
    on_accent="#0c1626",
    accent_soft="#1f2c40",
    warm="#e3b341",
    hot="#f2904d",
    throttled="#bb96f7",
    failed="#ff7b72",
    succeeded="#56c184",
    series=("#6ea8fe", "#f0894a", "#3eb194", "#e58fc9", "#9bdcff", "#ffd63c", "#a875c9", "#c7e9ca"),
)
