"""Let Qt draw the same on every machine; import this before Qt starts."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["FONTCONFIG_FILE"] = str(Path(__file__).with_name("fonts.conf"))
for name in ("QT_FONT_DPI", "QT_SCALE_FACTOR", "QT_SCREEN_SCALE_FACTORS", "QT_STYLE_OVERRIDE"):
    os.environ.pop(name, None)
