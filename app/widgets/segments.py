"""Let the user choose one of several views or ranges in a row of joined buttons."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QPushButton

from gpudeck.app.widgets.controls import row


class Segments(QFrame):
    """Show checkable buttons as one control; whoever made them checks the one that holds."""

    def __init__(self, name: str, *buttons: QPushButton) -> None:
        """Call the control `name` for screen readers."""
        super().__init__()
        self.setProperty("segments", "true")
        self.setAccessibleName(name)
        for one in buttons:
            one.setCheckable(True)
            one.setProperty("kind", "segment")
        self.setLayout(row(*buttons, spacing=0, margins=(2, 2, 2, 2)))
