"""Type how another machine is reached."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame

from gpudeck.app.format.hosts import make_host
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    column,
    label,
    line_box,
    row,
    set_text,
    show_if_any,
)
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import HostSettings


class HostForm(QFrame):
    """Edit a machine's name and address, with what is said about it below."""

    entered = Signal(str, object, bool)
    """Carries the name, its HostSettings, and whether it is added, or only tested."""
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("card", "true")
        self.name = line_box(tr("Name"), "lab1", tr("Your name for the machine"))
        self.address = line_box(
            tr("Address"), "user@lab1", tr("What you give to ssh, or a name of ~/.ssh/config")
        )
        self.config = line_box(
            tr("ssh configuration"),
            "~/.ssh/config",
            tr("Another configuration file of ssh; may be empty"),
        )
        self.home = line_box(
            tr("Folder of GPU Deck there"), tr("usual"), tr("Its state folder there; may be empty")
        )
        self.test = button(tr("Test"), lambda: self._enter(add=False), tooltip=hint("host.test"))
        self.add = button(tr("Test and add"), lambda: self._enter(add=True), kind="primary")
        self.cancel = button(tr("Cancel"), self.left, tooltip="Esc")
        self.said = label(wrap=True)
        self.said.setAccessibleName(tr("Outcome"))
        self.said.hide()
        boxes = [
            Stretch(column(label(line.accessibleName(), size="small", meaning="muted"), line))
            for line in (self.name, self.address, self.config, self.home)
        ]
        help_ = label(
            tr("Your own ssh is used, with your keys and your agent; nothing is installed there."),
            size="small",
            meaning="muted",
            wrap=True,
        )
        self.setLayout(
            column(
                label(tr("Add a machine"), strong=True),
                row(*boxes, spacing=theme.M),
                row(Stretch(help_), self.cancel, self.test, self.add, spacing=theme.M),
                self.said,
                spacing=theme.M,
                margins=(theme.L, theme.M, theme.L, theme.M),
            )
        )
        for line in (self.name, self.address, self.config, self.home):
            line.returnPressed.connect(self.add.click)
        self.setFocusProxy(self.name)

    def show_text(self, text: str, *, failed: bool = False, busy: bool = False) -> None:
        """Show how a test went; while one runs (`busy`) no other can be started."""
        show_if_any(self.said, text)
        theme.mark(self.said, "meaning", "failed" if failed else "muted")
        self.test.setEnabled(not busy)
        self.add.setEnabled(not busy)

    def clear(self) -> None:
        """Empty all boxes."""
        for line in (self.name, self.address, self.config, self.home):
            line.clear()
        set_text(self.said, "")
        self.said.hide()

    def typed(self) -> tuple[str, HostSettings]:
        """Return the name and the machine. Raises UserError that says what to type."""
        name, address, config, home = (
            line.text().strip() for line in (self.name, self.address, self.config, self.home)
        )
        if not name or not address:
            raise UserError(tr("enter a name, such as lab1, and an address, such as user@lab1"))
        return name, make_host(name, address, config, home)

    def _enter(self, add: bool) -> None:
        try:
            name, host = self.typed()
        except UserError as e:
            self.show_text(str(e), failed=True)
            return
        self.entered.emit(name, host, add)
