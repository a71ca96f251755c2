"""Change the settings: each change applies at once, and errors are shown beside the field."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QWidget

from app.link.link import Link
from app.settings.diagnostics import about, diagnostics
from app.settings.form import SETTINGS, change, text_of
from app.settings.setting_row import SettingRow
from app.state import State
from app.widgets import theme
from app.widgets.controls import (
    Stretch,
    button,
    card,
    clear_panel,
    column,
    label,
    row,
    scroll_area,
    set_text,
)
from app.widgets.safe_text import SafeText
from scheduler.protocol import settings as stored
from scheduler.protocol.errors import UserError

_WIDEST = 960


class SettingsPage(QWidget):
    """Show and change the settings."""

    configured = Signal(object)
    """Carries the new settings."""
    cleaning = Signal()
    """Emitted when the user opens the clean-up page."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.rows = {setting.name: SettingRow(setting) for setting in SETTINGS}
        for name, made in self.rows.items():
            made.entered.connect(lambda text, n=name: self._enter(n, text))
        self.about = SafeText()
        self.about.setAccessibleName("About")
        self._about: tuple[tuple[str, str], ...] = ()
        self.copy = button(
            "Copy diagnostics",
            self._copy,
            tooltip="Copy a text for a bug report, without names, paths and secrets",
        )
        self.clean = button(
            "Clean up…",
            self.cleaning,
            tooltip="Search for unneeded files and move them to the trash",
        )
        self.copied = label(size="small", meaning="muted")
        self._lay_out()

    def refresh(self) -> None:
        """Show the current settings and what runs."""
        snapshot = self._state.snapshot
        if snapshot is not None:
            for made in self.rows.values():
                made.show_text(text_of(snapshot.settings, made.setting))
        shown = (*about(self._state), ("Style", theme.tokens().scheme))
        if shown != self._about:
            self._about = shown
            self.about.show_table(shown)

    def _take(self, settings: stored.Settings) -> None:
        for made in self.rows.values():
            made.clear_error()
        self.configured.emit(settings)

    def _enter(self, name: str, text: str) -> None:
        made, snapshot = self.rows[name], self._state.snapshot
        if snapshot is None:
            made.show_error("The daemon does not answer. Try again once it does.")
            return
        try:
            request = change(snapshot.settings, made.setting, text)
        except UserError as e:
            made.show_error(str(e))
            return
        made.clear_error()
        if request is not None:
            self._link.send(self, request, self._take, made.show_error)

    def _copy(self) -> None:
        snapshot = self._state.snapshot
        text = diagnostics(snapshot, snapshot.alerts if snapshot else ())
        QGuiApplication.clipboard().setText(text)
        set_text(self.copied, f"Copied {len(text.splitlines())} lines")

    def _lay_out(self) -> None:
        cards = [self._group_card(group) for group in dict.fromkeys(s.group for s in SETTINGS)]
        self.about.setFixedHeight(112)
        copy = row(self.copy, self.copied, Stretch())
        about = card(column(label("About", strong=True), self.about, copy))
        content = clear_panel(column(*cards, about, Stretch()))
        content.setMaximumWidth(_WIDEST)
        across = row(Stretch(), Stretch(content, 1000), Stretch())
        across.setAlignment(content, Qt.AlignmentFlag.AlignTop)
        self.setLayout(column(scroll_area(clear_panel(across), "All settings")))

    def _group_card(self, group: str) -> QFrame:
        rows = [self.rows[setting.name] for setting in SETTINGS if setting.group == group]
        layout = column(label(group, strong=True), *rows, spacing=theme.M)
        if group == "Clean-up":
            layout.addLayout(row(self.clean, Stretch()))
        return card(layout)
