"""The settings page: each change is in force at once, and wrong ones say why beside the field."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.link.link import Link
from app.settings.about import about
from app.settings.diagnostics import diagnostics
from app.settings.form import SETTINGS, change, text_of
from app.settings.setting_row import SettingRow
from app.state import State
from app.widgets import theme
from app.widgets.controls import button, card, label, row, set_text
from app.widgets.safe_text import SafeText
from scheduler.protocol import settings as stored
from scheduler.protocol.errors import UserError

_WIDEST = 960


class SettingsPage(QWidget):
    """Changes the settings. Emits `cleaning` when the user asks for the clean-up page."""

    configured = Signal(object)
    """The settings changed; carries the new `Settings`."""
    cleaning = Signal()
    """The clean-up page is wanted."""

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
            tooltip="One text to paste into a bug report, without names, paths and secrets",
        )
        self.copy.clicked.connect(self._copy)
        self.clean = button(
            "Clean up…", tooltip="Look for what may go, and choose what goes to the trash"
        )
        self.clean.clicked.connect(self.cleaning)
        self.copied = label(size="small", meaning="muted")
        self._lay_out()

    def refresh(self) -> None:
        snapshot = self._state.snapshot
        if snapshot is not None:
            for made in self.rows.values():
                made.show_text(text_of(snapshot.settings, made.setting))
        shown = (*about(self._state), ("Scheme", theme.tokens().scheme))
        if shown != self._about:
            self._about = shown
            self.about.show_table(shown)

    def _take(self, settings: stored.Settings) -> None:
        for made in self.rows.values():
            made.show_error("")
        self.configured.emit(settings)

    def _enter(self, name: str, text: str) -> None:
        made, snapshot = self.rows[name], self._state.snapshot
        if snapshot is None:
            made.show_error("the daemon does not answer; try again once it does")
            return
        try:
            request = change(snapshot.settings, made.setting, text)
        except UserError as e:
            made.show_error(str(e))
            return
        made.show_error("")
        if request is not None:
            self._link.send(self, request, self._take, made.show_error)

    def _copy(self) -> None:
        snapshot = self._state.snapshot
        text = diagnostics(snapshot, snapshot.alerts if snapshot else ())
        QGuiApplication.clipboard().setText(text)
        set_text(self.copied, f"{len(text.splitlines())} lines are in the clipboard")

    def _lay_out(self) -> None:
        body = QVBoxLayout()
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(theme.S)
        for group in dict.fromkeys(s.group for s in SETTINGS):
            inner = QVBoxLayout()
            inner.setSpacing(theme.M)
            inner.addWidget(label(group, strong=True))
            for setting in SETTINGS:
                if setting.group == group:
                    inner.addWidget(self.rows[setting.name])
            if group == "Clean-up":
                line = row(self.clean)
                line.addStretch(1)
                inner.addLayout(line)
            body.addWidget(card(inner))
        inner = QVBoxLayout()
        inner.setSpacing(theme.S)
        inner.addWidget(label("About", strong=True))
        inner.addWidget(self.about)
        line = row(self.copy, self.copied)
        line.addStretch(1)
        inner.addLayout(line)
        self.about.setFixedHeight(112)
        body.addWidget(card(inner))
        body.addStretch()
        content = QWidget()
        content.setProperty("clear", "true")
        content.setMaximumWidth(_WIDEST)
        content.setLayout(body)
        outer = QWidget()
        outer.setProperty("clear", "true")
        across = QHBoxLayout(outer)
        across.setContentsMargins(0, 0, 0, 0)
        across.addStretch(1)
        across.addWidget(content, 1000, Qt.AlignmentFlag.AlignTop)
        across.addStretch(1)
        scroll = QScrollArea()
        scroll.setAccessibleName("All settings")
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(outer)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scroll)
