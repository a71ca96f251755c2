"""The line that filters a table."""

from __future__ import annotations

from PySide6.QtWidgets import QLineEdit


def filter_box(hint: str) -> QLineEdit:
    box = QLineEdit()
    box.setPlaceholderText(hint)
    box.setClearButtonEnabled(True)
    box.setMinimumWidth(340)
    box.setAccessibleName("Filter")
    return box
